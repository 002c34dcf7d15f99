from typing import Any

import pytest
from sales_words import Slots, Vocabulary

PIZZAS = ("hawaiian", "four cheese", "chicken pesto", "the greek", "italian supreme")


def read(question: str) -> Slots:
    return Vocabulary(PIZZAS).read(question)


@pytest.mark.parametrize(
    ("question", "filters"),
    [
        ("How many pizzas were sold in July?", {"month": ("July",)}),
        ("revenue in Sept. 2015", {"month": ("September",)}),
        ("revenue on July 4th", {"date": ("2015-07-04",)}),
        ("revenue on the 4th of July", {"date": ("2015-07-04",)}),
        ("revenue on 2015-07-04 at 5 pm", {"date": ("2015-07-04",), "hour": ("17",)}),
        ("revenue in the second quarter", {"quarter": ("2",)}),
        ("revenue in Q4", {"quarter": ("4",)}),
        ("orders on Fridays at lunch", {"weekday": ("Friday",), "time": ("lunch",)}),
        ("orders on weekends", {"weekday": ("weekends",)}),
        ("orders on weekdays", {"weekday": ("weekdays",)}),
        ("small or large pizzas", {"size": ("L", "S")}),
        ("extra large pizzas", {"size": ("XL",)}),
        ("revenue of chicken pizzas", {"type": ("chicken",)}),
        ("revenue of the chicken pesto", {"pizza": ("chicken pesto",)}),
        ("four cheese pizzas sold", {"pizza": ("four cheese",)}),
        ("how much is a Greek?", {"pizza": ("the greek",)}),
        ("italian supreme pizzas in supreme", {"pizza": ("italian supreme",), "type": ("supreme",)}),
    ],
)
def test_filters_are_read(question: str, filters: dict[str, Any]) -> None:
    slots = read(question)
    assert (slots.filters, slots.unknown) == (filters, ())


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("What are the five most popular pizzas?", {"shapes": ("top",), "implied": "pizzas", "limit": 5}),
        ("top 3 pizzas", {"shapes": ("top",), "limit": 3}),
        ("Which pizza type is the least popular?", {"dimensions": ("type",), "shapes": ("bottom",)}),
        ("When are we busiest?", {"dimensions": ("hour",), "shapes": ("top",), "implied": "orders"}),
        ("revenue by size", {"dimensions": ("size",), "metrics": ("revenue",)}),
        ("How many large veggie pizzas were sold?", {"metrics": ("pizzas",)}),
        ("How many hawaiian did we sell?", {"metrics": (), "implied": "pizzas"}),
        ("How many sizes are there?", {"shapes": ("variety",), "dimensions": ("size",)}),
        ("How many pizzas are in an average order?", {"metrics": ("pizzas",), "rate": "order"}),
        ("What is the average order value?", {"rate": "order", "average": False}),
        ("average revenue per month", {"metrics": ("revenue",), "dimensions": ("month",), "average": True}),
        ("What share of orders came on Mondays?", {"shapes": ("share",), "metrics": ("orders",)}),
        ("revenue and orders", {"metrics": ("orders", "revenue")}),
    ],
)
def test_what_is_asked_for_is_read(question: str, said: dict[str, Any]) -> None:
    slots = read(question)
    assert {name: getattr(slots, name) for name in said} == said
    assert slots.unknown == ()


@pytest.mark.parametrize(
    ("question", "unknown"),
    [
        ("How many burgers were sold?", ("burgers",)),
        ("revenue in 2016", ("2016",)),
        ("revenue except veggie", ("except",)),
        ("revenue not on Mondays", ("not",)),
        ("revenue between June and July", ("between",)),
        ("revenue from June to July", ("to",)),
        ("revenue on February 30", ("30",)),
        ("orders with more than 5 pizzas", ("more", "than", "5")),
        ("top 500 pizzas", ("500",)),
        ("revenue last week", ("last", "week")),
        ("'; DROP TABLE sales; --", ("drop", "table")),
    ],
)
def test_a_word_that_may_change_the_meaning_is_unknown(question: str, unknown: tuple[str, ...]) -> None:
    assert read(question).unknown == unknown
