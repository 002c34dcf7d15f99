"""The words of a question about sales, and what each asks for.

The vocabulary is closed: a word that stands nowhere here may change the meaning ("except", "last year", "burgers"),
so it is reported as unknown, and the question is declined rather than answered without it.
"""

import re
from calendar import day_name, month_abbr, month_name
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import NamedTuple

YEAR = 2015
MAX_LISTED = 20
FILTERS = ("pizza", "type", "size", "date", "month", "quarter", "weekday", "time", "hour")

_FILLER = """
a all also altogether am an and any are as at be been being bought bring brought buy by came can come comes compare
compared could count counts did do does dollar dollars during each every figure figures find for from get give had
has have how i in is it its list made make makes me much my name names of on only or order ordered our overall per
pie pies pizza pizzas pizzeria place placed please restaurant s sale see sell selling sells shop show sold split
store sum tell that the their them there these they this those total us usd value values versus vs was we were what
which whole with year you
"""
_FILLER_WORDS = frozenset(_FILLER.split())
_NUMBERS = "one two three four five six seven eight nine ten"
_DIGITS = {word: str(number) for number, word in enumerate(_NUMBERS.split(), 1)}

_Term = tuple[str, Mapping[str, str]]

# Pattern → slots. Earlier ones win: "extra large" before "large", "an average order" before "average".
_TERMS: tuple[_Term, ...] = (
    (r"chicken(?= pizzas?)|poultry", {"type": "chicken"}),
    (r"classics?", {"type": "classic"}),
    (r"supremes?", {"type": "supreme"}),
    (r"veggies?|vegetarian|meatless", {"type": "veggie"}),
    (r"extra extra large|xxl", {"size": "XXL"}),
    (r"extra large|xl", {"size": "XL"}),
    (r"large|size l", {"size": "L"}),
    (r"medium|size m", {"size": "M"}),
    (r"small|size s", {"size": "S"}),
    (r"weekends?", {"weekday": "weekends"}),
    (r"(?<=on )weekdays|workdays?", {"weekday": "weekdays"}),
    (r"mornings?|breakfast", {"time": "morning"}),
    (r"lunch|lunch ?times?|noon", {"time": "lunch"}),
    (r"afternoons?", {"time": "afternoon"}),
    (r"evenings?|dinner|dinner ?times?", {"time": "evening"}),
    (r"late|nights?", {"time": "night"}),
    (r"(how many|number of) (?=(pizza )?(types|kinds|sorts|sizes|categories))", {"shape": "variety"}),
    (r"(which|each|every|by|per) pizzas?(?! (types?|sizes?|kinds?|categor))", {"dimension": "pizza"}),
    (r"days? of the week|weekdays?", {"dimension": "weekday"}),
    (r"(parts?|times?) of (the )?day|meals?|meal ?times?", {"dimension": "time"}),
    (r"hours?( of (the )?day)?|what time|when", {"dimension": "hour"}),
    (r"months?|monthly", {"dimension": "month"}),
    (r"quarters?|quarterly", {"dimension": "quarter"}),
    (r"sizes?", {"dimension": "size"}),
    (r"(types?|categor(y|ies)|kinds?|sorts?)( of pizzas?)?", {"dimension": "type"}),
    (r"days?|dates?|daily", {"dimension": "date"}),
    (r"share|percentage|percent|fraction|proportion", {"shape": "share"}),
    (r"different|distinct|variety|varieties|menu|offer(ed)?", {"shape": "variety"}),
    (r"(what|which) are", {"several": "yes"}),
    (
        r"(per|an?|each|every|average|typical) ((average|typical) )?(order|customer|guest)( spends?)?( value)?",
        {"rate": "order"},
    ),
    (r"order values?", {"rate": "order"}),
    (r"average|mean|typical(ly)?", {"average": "yes"}),
    (r"least busy|quiet(er|est)?|slow(er|est)?", {"implied": "orders", "shape": "bottom"}),
    (r"most busy|bus(y|ier|iest)", {"implied": "orders", "shape": "top"}),
    (r"least expensive|cheapest", {"metric": "price", "shape": "bottom"}),
    (r"most expensive|dearest|priciest", {"metric": "price", "shape": "top"}),
    (r"price|prices|priced|costs?|expensive|cheap", {"metric": "price"}),
    (r"least popular|least sold|worst ?-?sell(ing|ers?)", {"implied": "pizzas", "shape": "bottom"}),
    (r"most popular|most sold|popular|best ?-?sell(ing|ers?)|favou?rites?", {"implied": "pizzas", "shape": "top"}),
    (r"least|worst|lowest|fewest|smallest|minimum|bottom", {"shape": "bottom"}),
    (r"most|best|top|highest|biggest|greatest|maximum|leading", {"shape": "top"}),
    (r"(customers?|guests?) spen[dt]", {"metric": "revenue"}),
    (r"orders|customers?|guests?|transactions?", {"metric": "orders"}),
    (r"(many|number of|count of)[ ;]+(pizzas?|pies|sales)|units?", {"metric": "pizzas"}),
    (r"many|number of", {"implied": "pizzas"}),
    (
        r"revenues?|money|income|turnover|takings|sales|earn(ed|ings?|s)?|spen[dt]|worth|gross(ed)?",
        {"metric": "revenue"},
    ),
)


class Slots(NamedTuple):
    """What a question says outright. `unknown` are its words that nothing here understands.

    `implied` is the metric that a word such as "busiest" only suggests; `limit` is 0 where no number was said.
    """

    filters: Mapping[str, tuple[str, ...]]
    dimensions: tuple[str, ...]
    metrics: tuple[str, ...]
    implied: str | None
    shapes: tuple[str, ...]
    rate: str | None
    average: bool
    several: bool
    limit: int
    unknown: tuple[str, ...]


class Vocabulary:
    """The terms above, the calendar of the year, and the names of the pizzas."""

    def __init__(self, pizzas: Iterable[str]) -> None:
        terms = (*_pizza_terms(pizzas), *_calendar_terms(), *_TERMS)
        self._terms = [(re.compile(rf"\b(?:{pattern})\b"), slots) for pattern, slots in terms]

    def read(self, question: str) -> Slots:
        """Take every term out of the question, in the order listed; what is left must be filler. 1 ms."""
        found: dict[str, list[str]] = defaultdict(list)
        rest = _plain(question)
        for pattern, slots in self._terms:
            rest, times = pattern.subn(" ; ", rest)
            for slot, value in slots.items() if times else ():
                found[slot].append(value)
        return _slots(found, [word for word in re.findall(r"\w+", rest) if word not in _FILLER_WORDS])


def _slots(found: Mapping[str, list[str]], left: list[str]) -> Slots:
    """A number that is left over is how many to list, where something is ranked."""
    said = {slot: tuple(dict.fromkeys(values)) for slot, values in found.items()}
    numbers = [int(word) for word in left if word.isdecimal()]
    is_ranked = bool({"top", "bottom"}.intersection(said.get("shape", ())))
    has_limit = is_ranked and len(numbers) == 1 and 1 <= numbers[0] <= MAX_LISTED
    return Slots(
        filters={slot: said[slot] for slot in FILTERS if slot in said},
        dimensions=said.get("dimension", ()),
        metrics=said.get("metric", ()),
        implied=next(iter(said.get("implied", ())), None),
        shapes=said.get("shape", ()),
        rate=next(iter(said.get("rate", ())), None),
        average="average" in said,
        several="several" in said,
        limit=numbers[0] if has_limit else 0,
        unknown=tuple(word for word in left if not (has_limit and word.isdecimal())),
    )


def _plain(question: str) -> str:
    """Lower case, numbers as digits, and without the one year that the table has."""
    text = re.sub(rf"\b((in|of|for|during) )?(the year )?{YEAR}\b(?!-)", " ", question.lower().replace("’", "'"))
    return "".join(_DIGITS.get(word, word) for word in re.split(r"(\W+)", " ".join(text.split())))


def _pizza_terms(pizzas: Iterable[str]) -> Iterator[_Term]:
    """Longest first: the chicken pesto is not the pesto."""
    for name in sorted(pizzas, key=len, reverse=True):
        yield rf"(the )?{re.escape(_plain(name.removeprefix('the ')))}s?", {"pizza": name}


def _calendar_terms() -> Iterator[_Term]:
    """Days ("July 4th", "4 July", "2015-07-04"), months, quarters, weekdays and hours ("5 pm")."""
    for ordinal in range(date(YEAR, 1, 1).toordinal(), date(YEAR + 1, 1, 1).toordinal()):
        day = date.fromordinal(ordinal)
        number, month = rf"0?{day.day}(st|nd|rd|th)?", month_name[day.month].lower()
        yield rf"{month} {number}|(the )?{number} (of )?{month}|{day.isoformat()}", {"date": day.isoformat()}
    for month, short in zip(month_name[1:], month_abbr[1:], strict=True):
        yield rf"{month.lower()}|{short.lower()}t?\.?", {"month": month}
    for quarter, ordinal_word in enumerate(("first", "second", "third", "fourth"), 1):
        yield rf"q{quarter}|({ordinal_word}|{quarter}(st|nd|rd|th)) quarter", {"quarter": str(quarter)}
    for weekday in day_name:
        yield rf"{weekday.lower()}s?", {"weekday": weekday}
    for hour in range(24):
        yield rf"{hour % 12 or 12} ?{'ap'[hour // 12]}\.?m\.?|{hour}:00", {"hour": str(hour)}
