"""What SQL may reach the database: one SELECT from one table, made of what is listed here and nothing else."""

import sqlglot
from sales_table import TABLE
from sqlglot import exp

from headway.functions import StepError
from schemas.errors import ErrorCode

MAX_CHARS = 2_000
ALLOWED = f"allowed is one SELECT from `{TABLE}` with common aggregates and date parts"

_FUNCTIONS: frozenset[type[exp.Expr]] = frozenset({
    exp.Abs, exp.Avg, exp.Coalesce, exp.Count, exp.CountIf, exp.Day, exp.Dayname, exp.DayOfWeek, exp.Extract,
    exp.Hour, exp.Length, exp.Lower, exp.Max, exp.Median, exp.Min, exp.Minute, exp.Month, exp.Monthname, exp.Nullif,
    exp.Quarter, exp.Rank, exp.Round, exp.RowNumber, exp.Stddev, exp.Sum, exp.Upper, exp.Year,
})  # fmt: skip

_SYNTAX: frozenset[type[exp.Expr]] = frozenset({
    exp.Add, exp.Alias, exp.And, exp.Between, exp.Boolean, exp.Case, exp.Cast, exp.Column, exp.CTE, exp.DataType,
    exp.DataTypeParam, exp.Distinct, exp.Div, exp.EQ, exp.Filter, exp.From, exp.Group, exp.GT, exp.GTE, exp.Having,
    exp.Identifier, exp.If, exp.In, exp.Is, exp.Like, exp.Limit, exp.Literal, exp.LT, exp.LTE, exp.Mod, exp.Mul,
    exp.NEQ, exp.Neg, exp.Not, exp.Null, exp.Offset, exp.Or, exp.Order, exp.Ordered, exp.Paren, exp.Select, exp.Star,
    exp.Sub, exp.Subquery, exp.Table, exp.TableAlias, exp.Tuple, exp.Var, exp.Where, exp.Window, exp.With,
})  # fmt: skip


def checked(sql: str) -> str:
    """The statement to run, written anew from what was understood of `sql`; StepError says what was refused."""
    if len(sql) > MAX_CHARS:
        raise refusal(f"a query of {len(sql)} characters", f"allowed are {MAX_CHARS}")
    try:
        statement = _only_statement(sql)
        tables = {TABLE, *(cte.alias_or_name.lower() for cte in statement.find_all(exp.CTE))}
        for node in statement.walk():
            _check(node, tables)
        return statement.sql(dialect="duckdb")
    except sqlglot.errors.SqlglotError:
        raise refusal("text that cannot be read as SQL") from None
    except RecursionError:
        raise refusal("an expression nested too deeply") from None


def _only_statement(sql: str) -> exp.Select:
    statements = [statement for statement in sqlglot.parse(sql, dialect="duckdb") if statement is not None]
    if not statements:
        raise refusal("an empty query")
    if len(statements) > 1:
        raise refusal("a second statement")
    if not isinstance(statements[0], exp.Select):
        raise refusal(f"{type(statements[0]).__name__.upper()} as a statement")
    return statements[0]


def _check(node: exp.Expr, tables: set[str]) -> None:
    if isinstance(node, exp.With) and node.recursive:
        raise refusal("a recursive query (WITH RECURSIVE)")
    if isinstance(node, exp.Table) and not _is_plain(node, tables):
        raise refusal(f"reading from `{node.sql(dialect='duckdb')[:60]}`")
    if type(node) in _SYNTAX or type(node) in _FUNCTIONS:
        return
    kind = "the function" if isinstance(node, exp.Func) else "the SQL feature"
    raise refusal(f"{kind} {_name(node)}")


def _is_plain(table: exp.Table, tables: set[str]) -> bool:
    """A name that is known, without a schema or catalog: neither a file nor a table function."""
    is_name = isinstance(table.this, exp.Identifier) and not table.args.get("db")
    return is_name and table.name.lower() in tables


def _name(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return f"`{node.name[:60]}`"
    return f"`{node.sql_name().lower() if isinstance(node, exp.Func) else type(node).__name__.lower()}`"


def refusal(what: str, rule: str = ALLOWED) -> StepError:
    """Not retryable: the same query is refused again."""
    return StepError(f"refused {what}: {rule}", code=ErrorCode.INVALID_INPUT)
