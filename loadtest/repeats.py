"""Several repeats of one measurement as one: the median of each figure, its extremes, and every repeat."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from loadtest.context import BROKEN
from loadtest.measure import SERIES

Figures = Mapping[str, Any]


def combined(repeats: Sequence[Figures]) -> dict[str, Any]:
    """The median of every number, `spread` with its least and greatest, `repeats` with all but their series.

    A ratio is taken inside each repeat, where both sides met the same machine; its median is one of ratios, too.
    What is no number is that of the typical repeat, and so are the series, which plots are made of.
    One repeat stays as it is.
    """
    if len(repeats) == 1:
        return dict(repeats[0])
    broken = sorted({promise for figures in repeats for promise in figures.get(BROKEN, ())})
    return {
        **_medians(repeats, typical(repeats)),
        **({BROKEN: broken} if any(BROKEN in figures for figures in repeats) else {}),
        "spread": _spread(repeats),
        "repeats": [_without_series(figures) for figures in repeats],
    }


def typical(repeats: Sequence[Figures]) -> Figures:
    """The one with the median latency, or throughput where there is none; the lower of two."""
    ordered = sorted(repeats, key=_rank)
    return ordered[(len(ordered) - 1) // 2]


def _rank(figures: Figures) -> float:
    latency = figures.get("latency_ms", {})
    return float(latency.get("p50") or figures.get("throughput_per_s") or 0.0)


def _medians(repeats: Sequence[Figures], chosen: Figures) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in chosen.items():
        others = [figures.get(name) for figures in repeats]
        if name == SERIES:
            found[name] = value
        elif isinstance(value, Mapping):
            found[name] = _medians([other for other in others if isinstance(other, Mapping)], value)
        else:
            numbers = _numbers(others)
            found[name] = _median(numbers) if numbers else value
    return found


def _median(numbers: Sequence[float]) -> float:
    """A count stays one, where it can."""
    middle = median(numbers)
    return (
        int(middle) if all(isinstance(each, int) for each in numbers) and middle == int(middle) else round(middle, 3)
    )


def _spread(repeats: Sequence[Figures]) -> dict[str, Any]:
    """Least and greatest of each number that is not the same in all."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for figures in repeats for name in figures if name != SERIES):
        values = [figures.get(name) for figures in repeats]
        inner = [value for value in values if isinstance(value, Mapping)]
        numbers = _numbers(values)
        if inner and (spread := _spread(inner)):
            found[name] = spread
        elif len(set(numbers)) > 1:
            found[name] = [min(numbers), max(numbers)]
    return found


def _numbers(values: Sequence[Any]) -> list[float]:
    return [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]


def _without_series(figures: Figures) -> dict[str, Any]:
    return {
        name: _without_series(value) if isinstance(value, Mapping) else value
        for name, value in figures.items()
        if name != SERIES
    }
