"""From what is asked about sales to SQL, and to the words that lead the answer.

Every piece of SQL stands in this file; a question only picks among them.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from sales_table import TABLE
from sales_words import YEAR

Unit = Literal["usd", "count", "mean", "percent"]
Filters = Mapping[str, tuple[str, ...]]

MAX_GROUPS = 50

# Metric → SQL, words.
_METRICS = {
    "revenue": ("sum(price)", "revenue"),
    "pizzas": ("count(*)", "number of pizzas sold"),
    "orders": ("count(DISTINCT order_id)", "number of orders"),
    "price": ("avg(price)", "average price"),
}
_EXTREME_PRICES = {"top": ("max(price)", "price"), "bottom": ("min(price)", "price")}

# Rate → what there are so many of, words.
_RATES = {
    "order": ("count(DISTINCT order_id)", "order"),
    "date": ("count(DISTINCT date)", "day of business"),
    "month": ("count(DISTINCT month(date))", "month"),
}

_PRODUCTS = ("pizza", "type", "size")

# Filter → SQL, words; a value that has its own comes from _VALUES.
_FILTERS = {
    "pizza": ("pizza = '{0}'", "the {0}"),
    "type": ("type = '{0}'", "{0} pizzas"),
    "size": ("size = '{0}'", "size {0}"),
    "date": ("date = '{0}'", "on {0}"),
    "month": ("monthname(date) = '{0}'", f"in {{0}} {YEAR}"),
    "quarter": ("quarter(date) = {0}", f"in quarter {{0}} of {YEAR}"),
    "weekday": ("dayname(date) = '{0}'", "on {0}s"),
    "hour": ("hour(time) = {0}", "from {0}:00 to {0}:59"),
}
_VALUES = {
    "weekends": ("dayname(date) IN ('Saturday', 'Sunday')", "on weekends"),
    "weekdays": ("dayname(date) NOT IN ('Saturday', 'Sunday')", "on weekdays"),
    "morning": ("hour(time) < 11", "in the morning (before 11:00)"),
    "lunch": ("hour(time) BETWEEN 11 AND 13", "at lunch (11:00 to 13:59)"),
    "afternoon": ("hour(time) BETWEEN 14 AND 16", "in the afternoon (14:00 to 16:59)"),
    "evening": ("hour(time) BETWEEN 17 AND 20", "in the evening (17:00 to 20:59)"),
    "night": ("hour(time) > 20", "at night (from 21:00)"),
}
_TIMES = ("morning", "lunch", "afternoon", "evening", "night")

# Dimension → SQL, words, and what puts the groups in their natural order.
_DIMENSIONS = {
    "pizza": ("pizza", "pizza", "pizza"),
    "type": ("type", "type", "type"),
    "size": ("size", "size", "min(price)"),  # small ones are cheap
    "date": ("date", "day", "date"),
    "month": ("monthname(date)", "month", "min(month(date))"),
    "quarter": ("quarter(date)", "quarter", "quarter(date)"),
    "weekday": ("dayname(date)", "day of the week", "min(dayofweek(date))"),
    "hour": ("hour(time)", "hour of the day", "hour(time)"),
    "time": (
        f"CASE {' '.join(f'WHEN {_VALUES[time][0]} THEN {time!r}' for time in _TIMES)} END",
        "part of the day",
        "min(hour(time))",
    ),
}


class Asked(NamedTuple):
    """A question, understood.

    `shape` is total, breakdown, top, bottom, share or variety (how many different ones); `rate` divides the metric by
    the orders, days or months there are.
    """

    shape: str
    metric: str
    filters: Filters
    dimension: str | None = None
    rate: str | None = None
    limit: int = 1


def select(asked: Asked) -> str:
    """One SELECT with the columns (value) or (group, value)."""
    value, where = _value(asked), _where(_narrowing(asked))
    if asked.dimension is None or asked.shape == "variety":
        return f"SELECT {value} AS value FROM {TABLE}{where}"  # noqa: S608  # only text of this file
    group, _, natural = _DIMENSIONS[asked.dimension]
    ranking = {"top": "value DESC, ", "bottom": "value, "}.get(asked.shape, "")
    most = MAX_GROUPS if asked.shape == "breakdown" else asked.limit
    grouped = f"SELECT {group} AS grouped, {value} AS value FROM {TABLE}{where} GROUP BY {group}"  # noqa: S608
    return f"{grouped} ORDER BY {ranking}{natural} LIMIT {most}"


def lead(asked: Asked) -> str:
    """How the sentence begins that the rows end, such as "The revenue in July 2015 was"."""
    start = f"The {_noun(asked)}{_when(asked.filters)}"
    if asked.dimension is None or asked.shape == "variety":
        return f"{start} was"
    rank = {"top": " highest for", "bottom": " lowest for"}.get(asked.shape, "")
    return f"{start}, by {_DIMENSIONS[asked.dimension][1]}, was{rank}"


def unit(asked: Asked) -> Unit:
    """What the values are."""
    if asked.shape == "share":
        return "percent"
    if asked.shape == "variety":
        return "count"
    if asked.metric in ("revenue", "price"):
        return "usd"
    return "mean" if asked.rate else "count"


def _value(asked: Asked) -> str:
    if asked.shape == "variety":
        return f"count(DISTINCT {_DIMENSIONS[asked.dimension or 'pizza'][0]})"
    measure, _ = _metric(asked)
    if asked.shape == "share":
        return f"100 * {measure} FILTER (WHERE {_conditions(_shared(asked.filters))}) / {measure}"
    return f"{measure} / {_RATES[asked.rate][0]}" if asked.rate else measure


def _noun(asked: Asked) -> str:
    """What is counted, and for which products."""
    products = _said({slot: asked.filters[slot] for slot in _PRODUCTS if slot in asked.filters})
    if asked.shape == "variety":
        noun = f"number of different {_DIMENSIONS[asked.dimension or 'pizza'][1]}s sold"
    else:
        noun = _metric(asked)[1]
    if asked.shape == "share":
        return f"share of {products or 'sales'} in the {noun}"
    if asked.rate:
        noun = f"average {noun} per {_RATES[asked.rate][1]}"
    return f"{noun} for {products}" if products else noun


def _metric(asked: Asked) -> tuple[str, str]:
    """SQL and words. The dearest pizza is known by its highest price, not by its average over sizes."""
    ranked_prices = _EXTREME_PRICES if asked.metric == "price" else {}
    return ranked_prices.get(asked.shape, _METRICS[asked.metric])


def _shared(filters: Filters) -> Filters:
    """What a share is of: the product asked for, or the time where no product is."""
    return {slot: values for slot, values in filters.items() if slot in _PRODUCTS} or filters


def _narrowing(asked: Asked) -> Filters:
    """The filters of the WHERE clause."""
    if asked.shape != "share":
        return asked.filters
    return {slot: values for slot, values in asked.filters.items() if slot not in _shared(asked.filters)}


def _where(filters: Filters) -> str:
    return f" WHERE {_conditions(filters)}" if filters else ""


def _conditions(filters: Filters) -> str:
    either = (" OR ".join(_filter(slot, value)[0] for value in values) for slot, values in filters.items())
    return " AND ".join(f"({condition})" for condition in either)


def _when(filters: Filters) -> str:
    """The times in words; without a date among them, the year of the table."""
    times = {slot: values for slot, values in filters.items() if slot not in _PRODUCTS}
    year = "" if times.keys() & {"date", "month", "quarter"} else f" in {YEAR}"
    return f" {_said(times)}{year}" if times else year


def _said(filters: Filters) -> str:
    return " ".join(" and ".join(_filter(slot, value)[1] for value in values) for slot, values in filters.items())


def _filter(slot: str, value: str) -> tuple[str, str]:
    sql, words = _VALUES.get(value) or _FILTERS[slot]
    return sql.format(value.replace("'", "''")), words.format(value)
