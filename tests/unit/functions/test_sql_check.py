import pytest
from sql_check import MAX_CHARS, checked

from headway.functions import StepError
from schemas.errors import ErrorCode


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM sales",
        "select type, round(sum(price), 2) as revenue from sales group by type order by revenue desc limit 3",
        "FROM sales",
        "SELECT * FROM Sales WHERE pizza LIKE 'the%' AND price BETWEEN 1 AND 2 OR NOT size IN ('S') LIMIT 5 OFFSET 1",
        "WITH hours AS (SELECT hour(time) AS h, count(*) AS n FROM sales GROUP BY h) SELECT max(n) FROM hours",
        "SELECT CASE WHEN price > 20 THEN 'dear' END, avg(price) FILTER (WHERE size = 'L') FROM sales GROUP BY ALL",
        "SELECT month(date), dayname(date), extract(year FROM date), date::VARCHAR FROM sales",
        "SELECT sum(price) FROM (SELECT price FROM sales WHERE price > (SELECT avg(price) FROM sales)) AS dear",
        "SELECT rank() OVER (PARTITION BY size ORDER BY price) FROM sales;",
    ],
)
def test_an_ordinary_query_passes(sql: str) -> None:
    assert checked(sql)


def test_what_runs_is_what_was_understood() -> None:
    assert checked("select 1 /* sales */ -- nothing") == "SELECT 1 /* sales */ /* nothing */"


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("SELECT 1; DROP TABLE sales", "a second statement"),
        ("SELECT 1; SELECT 2", "a second statement"),
        ("DROP TABLE sales", "DROP as a statement"),
        ("INSERT INTO sales VALUES (1)", "INSERT as a statement"),
        ("COPY sales TO 'x'", "COPY as a statement"),
        ("ATTACH 'x'", "ATTACH as a statement"),
        ("PRAGMA database_list", "PRAGMA as a statement"),
        ("SET threads = 8", "SET as a statement"),
        ("INSTALL httpfs", "INSTALL as a statement"),
        ("SELECT 1 UNION ALL SELECT 2", "UNION as a statement"),
        ("", "an empty query"),
        ("-- only a comment", "an empty query"),
        ("SELECT FROM WHERE", "cannot be read as SQL"),
        ("SELECT * FROM read_csv('/etc/passwd')", "READ_CSV('/etc/passwd')"),
        ("SELECT * FROM read_parquet('x')", "READ_PARQUET('x')"),
        ("SELECT * FROM '/etc/passwd'", "/etc/passwd"),
        ("SELECT * FROM glob('/*')", "GLOB('/*')"),
        ("SELECT * FROM range(1000000000)", "reading from"),
        ("SELECT * FROM information_schema.tables", "information_schema.tables"),
        ("SELECT * FROM other.sales", "other.sales"),
        ("SELECT * FROM duckdb_settings()", "DUCKDB_SETTINGS()"),
        ("SELECT * FROM passwords", "passwords"),
        ("SELECT getenv('HOME')", "the function `getenv`"),
        ("SELECT repeat('x', 2000000000) FROM sales", "the function `repeat`"),
        ("SELECT current_setting('threads')", "the function `current_setting`"),
        ("SELECT unnest([1, 2])", "refused"),
        ("SELECT list(price) FROM sales", "the function"),
        ("SELECT * FROM sales, sales AS other", "`join`"),
        ("SELECT * FROM sales POSITIONAL JOIN sales AS other", "`join`"),
        (
            "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
            "a recursive query",
        ),
        ("WITH t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t", "`union`"),
        ("WITH t AS (INSERT INTO sales VALUES (1)) SELECT 1", "`insert`"),
        ("SELECT $1", "`placeholder`"),
        ("SELECT price INTO copy FROM sales", "`into`"),
        ("SELECT COLUMNS(*) FROM sales", "columns"),
        ("SELECT " + "(" * 900 + "1" + ")" * 900, "nested too deeply"),
        ("x" * (MAX_CHARS + 1), f"a query of {MAX_CHARS + 1} characters"),
    ],
)
def test_everything_else_is_refused_by_name(sql: str, named: str) -> None:
    with pytest.raises(StepError) as refused:
        checked(sql)
    assert named in str(refused.value)
    assert "allowed" in str(refused.value)
    assert (refused.value.code, refused.value.retryable) == (ErrorCode.INVALID_INPUT, False)
