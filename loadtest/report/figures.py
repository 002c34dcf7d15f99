"""The figures of one scenario as people read them: the headline ones, and all of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from loadtest.measure import SERIES

Figures = Mapping[str, Any]
ASIDE = frozenset({SERIES, "machine", "scenario", "spread", "repeats", "command", "broken"})
"""Keys that a page shows elsewhere, or not at all."""


class Tile(NamedTuple):
    """One headline figure."""

    label: str
    value: str
    unit: str
    spread: str
    """Least to greatest of the repeats; empty of one."""
    is_bad: bool = False


class _Headline(NamedTuple):
    key: str
    label: str
    unit: str
    is_bad: Callable[[float], bool] = lambda _: False


HEADLINES = (
    _Headline("throughput_per_s", "throughput", "/s"),
    _Headline("latency_ms.p50", "median latency", "ms"),
    _Headline("latency_ms.p99", "99th percentile", "ms"),
    _Headline("added_ms.p50", "added to the ideal", "ms"),
    _Headline("hop_ratio", "of the floor's time", "×"),
    _Headline("floor.hop_ms.p50", "one hop of the floor", "ms"),
    _Headline("hop_ms.p50", "one hop", "ms"),
    _Headline("ratio", "loaded over idle", "×"),
    _Headline("efficiency", "efficiency", ""),
    _Headline("coordination_share", "coordination", ""),
    _Headline("p99_drift", "drift of the 99th", "×"),
    _Headline("rss_growth", "growth of memory", "×"),
    _Headline("completed", "completed", ""),
    _Headline("failed", "failed", "", bool),
)


def tiles(figures: Figures) -> Iterator[Tile]:
    """Those that this scenario has."""
    flat, spread = dict(rows(figures)), dict(rows(figures.get("spread") or {}))
    for headline in HEADLINES:
        value = flat.get(headline.key)
        if isinstance(value, int | float):
            extremes = spread.get(headline.key)
            between = " – ".join(map(number, extremes)) if isinstance(extremes, list | tuple) else ""
            yield Tile(headline.label, number(value), headline.unit, between, headline.is_bad(value))


def rows(figures: Figures, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every figure, by the dotted path of its key; of a list of figures, its length."""
    for name, value in figures.items():
        if name in ASIDE:
            continue
        if isinstance(value, Mapping):
            yield from rows(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def table(figures: Figures) -> Iterator[tuple[str, str, str]]:
    """Key, value, and the least and greatest of the repeats."""
    spread = dict(rows(figures.get("spread") or {}))
    for key, value in rows(figures):
        yield key, text(value), text(spread.get(key, ""))


def text(value: Any) -> str:
    """Numbers short, lists in one line, and nothing for nothing."""
    if value is None:
        return "–"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " – ".join(map(text, value)) if len(value) == 2 else ", ".join(map(text, value))
    return str(value)


def number(value: float) -> str:
    """Three digits that count, thousands apart: 0.0123, 12.3, 1,234."""
    if abs(value) >= 1_000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def name(figures: Figures) -> str:
    """The scenario, and how much load there was."""
    rate, callers = figures.get("rate_per_s"), figures.get("concurrency")
    load = f"{rate:g} a second" if rate else f"{callers} callers" if callers and callers > 1 else ""
    return f"{figures['scenario']}, {load}" if load else str(figures["scenario"])


def machine_line(figures: Figures) -> str:
    """Where it ran, and what: the values of `machine`, one after the other."""
    machine = figures.get("machine") or {}
    cpus, memory = machine.get("cpus"), machine.get("memory_gib")
    hardware = [f"{cpus} × {machine.get('processor', 'CPU')}" if cpus else "", f"{memory} GiB" if memory else ""]
    versions = [
        f"{name} {version}"
        for name, version in machine.items()
        if name not in ("cpus", "processor", "memory_gib", "system") and version
    ]
    return " · ".join(part for part in (*hardware, machine.get("system", ""), *versions) if part)
