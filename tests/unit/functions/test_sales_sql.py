from itertools import product

import pytest
from sales_sql import Asked, lead, select, unit
from sql_check import checked

FILTERS = {
    "pizza": ("the o'greek",),
    "type": ("veggie", "classic"),
    "size": ("L",),
    "date": ("2015-07-04",),
    "month": ("July",),
    "quarter": ("3",),
    "weekday": ("Friday", "weekends", "weekdays"),
    "time": ("morning", "lunch", "afternoon", "evening", "night"),
    "hour": ("17",),
}


@pytest.mark.parametrize("shape", ["total", "breakdown", "top", "bottom", "share", "variety"])
def test_every_query_that_can_be_asked_for_passes_the_check(shape: str) -> None:
    dimensions = (None, "pizza", "type", "size", "date", "month", "quarter", "weekday", "hour", "time")
    for metric, dimension, rate in product(
        ("revenue", "pizzas", "orders", "price"), dimensions, (None, "order", "date", "month")
    ):
        assert checked(select(Asked(shape, metric, FILTERS, dimension, rate, 5)))


def test_a_quote_in_a_name_stays_within_its_text() -> None:
    assert "pizza = 'the o''greek'" in select(Asked("total", "revenue", FILTERS))


@pytest.mark.parametrize(
    ("asked", "sql", "words", "kind"),
    [
        (
            Asked("total", "revenue", {"month": ("July",)}),
            "SELECT sum(price) AS value FROM sales WHERE (monthname(date) = 'July')",
            "The revenue in July 2015 was",
            "usd",
        ),
        (
            Asked("total", "pizzas", {}, rate="order"),
            "SELECT count(*) / count(DISTINCT order_id) AS value FROM sales",
            "The average number of pizzas sold per order in 2015 was",
            "mean",
        ),
        (
            Asked("top", "price", {"size": ("L",)}, "pizza", limit=2),
            "SELECT pizza AS grouped, max(price) AS value FROM sales WHERE (size = 'L')"
            " GROUP BY pizza ORDER BY value DESC, pizza LIMIT 2",
            "The price for size L in 2015, by pizza, was highest for",
            "usd",
        ),
        (
            Asked("share", "orders", {"type": ("veggie",), "month": ("July",)}),
            "SELECT 100 * count(DISTINCT order_id) FILTER (WHERE (type = 'veggie')) / count(DISTINCT order_id)"
            " AS value FROM sales WHERE (monthname(date) = 'July')",
            "The share of veggie pizzas in the number of orders in July 2015 was",
            "percent",
        ),
        (
            Asked("share", "revenue", {"weekday": ("weekends",)}),
            "SELECT 100 * sum(price) FILTER (WHERE (dayname(date) IN ('Saturday', 'Sunday'))) / sum(price)"
            " AS value FROM sales",
            "The share of sales in the revenue on weekends in 2015 was",
            "percent",
        ),
        (
            Asked("variety", "pizzas", {"type": ("veggie", "classic")}),
            "SELECT count(DISTINCT pizza) AS value FROM sales WHERE (type = 'veggie' OR type = 'classic')",
            "The number of different pizzas sold for veggie pizzas and classic pizzas in 2015 was",
            "count",
        ),
    ],
)
def test_a_question_becomes_sql_and_words(asked: Asked, sql: str, words: str, kind: str) -> None:
    assert (select(asked), lead(asked), unit(asked)) == (sql, words, kind)
