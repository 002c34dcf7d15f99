"""Questions about the sales table: from words to SQL, and from rows to a sentence.

The nearest of a few example questions says what kind of answer is wanted where the words leave it open; the words
themselves (sales_words.py) say the rest. What neither understands is declined, with examples of what can be asked.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from sales_sql import Asked, Unit, lead, select, unit
from sales_table import Cell, pizza_names
from sales_words import Slots, Vocabulary
from vectors import EncodedVector, cached_vectors, unit_vector

from headway.functions import StepContext

MIN_SIMILARITY = 0.3  # cosine with the nearest example: small talk stays below

_FORMATS = {"usd": "${:,.2f}", "count": "{:,.0f}", "mean": "{:,.2f}", "percent": "{:.1f} %"}


class Template(NamedTuple):
    """A figure that can be asked for, with examples that are embedded."""

    name: str
    metric: str
    examples: tuple[str, ...]
    rate: str | None = None


TEMPLATES = (
    Template("revenue", "revenue", (
        "How much money did we make?", "What was the total revenue in July?", "What were the sales of veggie pizzas?",
        "How much did large pizzas bring in on Fridays?", "Which month had the highest revenue?",
        "How do sales split by type?",
    )),
    Template("pizzas sold", "pizzas", (
        "How many pizzas were sold?", "How many large pizzas did we sell in March?", "Which pizza sells best?",
        "What are the five most popular pizzas?", "Which pizza sells worst?", "How many different pizzas are there?",
    )),
    Template("orders", "orders", (
        "How many orders were there?", "How many customers came on Mondays?", "What is the busiest hour of the day?",
        "Which weekday is the quietest?",
    )),
    Template("prices", "price", (
        "What does a large pizza cost?", "What is the average price of a pizza?", "What is the most expensive pizza?",
    )),
    Template("order value", "revenue", (
        "What is the average order value?", "What is spent on average?",
    ), rate="order"),
)  # fmt: skip

CAN_ASK = (
    "Ask about the revenue, pizzas sold, orders or prices of 2015, by pizza, type, size, month, weekday or hour,"
    " such as “How much revenue did veggie pizzas make in July?” or “What are the top three pizzas on Fridays?”"
)


class Question(BaseModel):
    """`vector` is the question's, as the embedding class returns it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    question: str = Field(min_length=1, max_length=2_000)
    vector: EncodedVector


class Plan(BaseModel):
    """The SQL that answers, and how the answer begins; or, not `answerable`, only why (`lead`)."""

    model_config = ConfigDict(frozen=True)

    answerable: bool
    lead: str
    template: str = ""
    similarity: float = 0.0
    sql: str = ""
    unit: Unit = "count"
    dimension: str | None = None


class Outcome(BaseModel):
    """A plan, and the rows of its query: (value) or (group, value)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan: Plan
    rows: tuple[tuple[Cell, ...], ...] = ()


class Told(BaseModel):
    """The answer as a sentence."""

    model_config = ConfigDict(frozen=True)

    answer: str


class _Loaded(NamedTuple):
    vocabulary: Vocabulary
    templates: list[Template]  # one for each row of vectors
    vectors: NDArray[np.float32]  # (examples, 384)


_loaded: list[_Loaded] = []


def warm_up(home: Path) -> None:
    """Embed the examples (once a home) and read the pizzas' names: 1 s, then 0.1 s."""
    rows = [(template, example) for template in TEMPLATES for example in template.examples]
    vectors = cached_vectors(home / "index", "sales", [example for _, example in rows])
    _loaded[:] = [_Loaded(Vocabulary(pizza_names()), [template for template, _ in rows], vectors)]


def plan(input: Question, ctx: StepContext) -> Plan:
    """What to query for a question, or why it cannot be answered."""
    (loaded,) = _loaded
    similarities = loaded.vectors @ unit_vector(input.vector)
    nearest = int(similarities.argmax())
    template, similarity = loaded.templates[nearest], round(float(similarities[nearest]), 4)
    slots = loaded.vocabulary.read(input.question)
    reason = _declined(slots, template, similarity)
    if reason:
        return Plan(
            answerable=False,
            lead=f"I cannot answer that. {reason} {CAN_ASK}",
            template=template.name,
            similarity=similarity,
        )
    asked = _asked(slots, template)
    return Plan(
        answerable=True,
        lead=lead(asked),
        template=template.name,
        similarity=similarity,
        sql=select(asked),
        unit=unit(asked),
        dimension=asked.dimension,
    )


def tell(input: Outcome, ctx: StepContext) -> Told:
    """A sentence that gives every value."""
    if not input.plan.answerable:
        return Told(answer=input.plan.lead)
    items = [_item(row, input.plan) for row in input.rows if row and row[-1] is not None]
    return Told(answer=f"{input.plan.lead} {', '.join(items)}." if items else "There were no such sales in 2015.")


def _declined(slots: Slots, template: Template, similarity: float) -> str | None:
    """Why the question cannot be answered, or None. No answer is better than a wrong number."""
    if slots.unknown:
        words = ", ".join(f"“{word[:40]}”" for word in slots.unknown[:5])
        return f"I do not know what {words} would mean for these sales."
    if similarity < MIN_SIMILARITY:
        return "That is not like any question about these sales that I know."
    if max(len(slots.metrics), len(slots.dimensions), len(slots.shapes)) > 1:
        return "That asks for several things at once."
    return _ambiguous(slots, _asked(slots, template))


def _ambiguous(slots: Slots, asked: Asked) -> str | None:
    if asked.shape == "share" and not asked.filters:
        return "A share of what? Name a type, a size, a pizza or a time."
    if slots.average and not asked.rate and asked.metric != "price":
        return "An average of what? Say per order, per day or per month."
    if asked.rate == "order" and asked.metric == "orders":
        return "Customers are known by their orders only."
    if asked.dimension == "date" and asked.shape in ("breakdown", "share"):
        return "There are too many days to list."
    if _is_ranked(slots) and not slots.dimensions and _compared(slots):
        return "That asks for several things at once."
    return None


def _asked(slots: Slots, template: Template) -> Asked:
    """The words decide; the template fills in what they leave open."""
    metric = next(iter((*slots.metrics, slots.implied or template.metric)))
    rate = _rate(slots, template, metric)
    dimension = next((slot for slot in (*slots.dimensions, _compared(slots)) if slot != rate), None)
    if _is_ranked(slots):
        dimension = dimension or "pizza"
    return Asked(
        shape=_shape(slots, dimension),
        metric="revenue" if metric == "price" and (rate or "share" in slots.shapes) else metric,
        filters=slots.filters,
        dimension=dimension,
        rate=rate,
        limit=slots.limit or (3 if slots.several else 1),
    )


def _rate(slots: Slots, template: Template, metric: str) -> str | None:
    """ "Per day" is an average over days, "per month" only with a word for it: it may ask for every month."""
    if slots.rate or slots.shapes or metric == "price":
        return slots.rate
    over = next(iter(slots.dimensions), None)
    if over == "date" or (over == "month" and slots.average):
        return over
    return template.rate if slots.average and not over and metric == template.metric else None


def _shape(slots: Slots, dimension: str | None) -> str:
    if slots.shapes:
        return slots.shapes[0]
    return "breakdown" if dimension else "total"


def _is_ranked(slots: Slots) -> bool:
    return bool({"top", "bottom"}.intersection(slots.shapes))


def _compared(slots: Slots) -> str | None:
    """What a question compares: "small or large" is by size."""
    if {"share", "variety"}.intersection(slots.shapes):
        return None
    return next((slot for slot, values in slots.filters.items() if len(values) > 1), None)


def _item(row: tuple[Cell, ...], plan: Plan) -> str:
    value = _FORMATS[plan.unit].format(row[-1])
    if len(row) == 1:
        return value
    group = f"{row[0]}:00" if plan.dimension == "hour" else row[0]
    return f"{group} ({value})"
