"""Plots of what was simulated in virtual time: what was published beside ours, and a day of workers."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from loadtest.measure import SERIES
from loadtest.report.drawing import SERIES as COLOURS
from loadtest.report.drawing import figure, standing_alone, svg
from loadtest.report.plot import Figures, Plot, at
from loadtest.virtual.model import ASLEEP_SHARE
from loadtest.virtual.paper import BURST, CASCADE, HYBRID, PREDICTION, TIER, Published

STEPS = {
    "sequential_s": "one load after the other",
    "prewarmed_s": "pre-warmed",
    "standby_s": "from standby",
}
OURS, THEIRS = COLOURS[0], COLOURS[7]
BAR = 0.38


class _Pair(NamedTuple):
    """A measure, ours and theirs, where theirs was published."""

    name: str
    ours: float
    told: str
    theirs: Published | None


class _Field(NamedTuple):
    """What is measured in one unit."""

    unit: str
    pairs: Sequence[_Pair]


def pictures(figures: Figures) -> dict[str, str]:
    """By name, files of their own."""
    plots = {"scaling-published": published(figures), "scaling-day": day(figures)}
    return {name: standing_alone(plot.svg) for name, plot in plots.items() if plot is not None}


def published(figures: Figures) -> Plot | None:
    """What was published beside ours, in one field for each unit."""
    fields = list(_fields(figures))
    if not fields:
        return None
    rows = sum(len(field.pairs) for field in fields)
    with figure(height_in=0.42 * rows + 0.55 * len(fields), rows=len(fields)) as (drawn, axes):
        for each, field in zip(axes, fields, strict=True):
            _draw_pairs(each, field)
        _name(axes[0], Patch(color=THEIRS, label="published"), Patch(color=OURS, label="ours"))
        note = "Load times are the published ones, and time is virtual."
        return Plot("Published, and ours", svg(drawn), note=note)


def _fields(figures: Figures) -> Iterator[_Field]:
    cascade, burst = at(figures, "cascade"), at(figures, "burst", "by_class")
    if cascade:
        shown = [_Pair(text, cascade[key], f"{cascade[key]:.3g} s", CASCADE.get(key)) for key, text in STEPS.items()]
        yield _Field("seconds to the answer of a request that finds everything at zero", shown)
    if shares := list(_shares(figures)):
        yield _Field("percent", shares)
    if burst:
        ratios = {name: each["peak_ratio"] for name, each in burst.items()}
        times = [_Pair(f"{name} workers", ratio, f"{ratio:.3g}", BURST[name]) for name, ratio in ratios.items()]
        yield _Field("times as many as one call a request takes, at ten times the traffic", times)


def _shares(figures: Figures) -> Iterator[_Pair]:
    for name, path, theirs in (
        ("cold starts a standby tier removes", ("tiers", "standby", f"{ASLEEP_SHARE:g}", "removed_share"), TIER),
        ("cold starts prediction removes", ("predictive", "removed_share"), PREDICTION),
        ("cost hosted workers save", ("hybrid", "saving_share"), HYBRID),
    ):
        share = at(figures, *path)
        if share is not None:
            yield _Pair(name, 100 * share, f"{share:.0%}", theirs._replace(value=100 * theirs.value))


def _draw_pairs(axes: Axes, field: _Field) -> None:
    """From top to bottom, theirs above ours."""
    for place, pair in enumerate(field.pairs):
        if pair.theirs is not None:
            drawn = axes.barh(place - BAR / 2, pair.theirs.value, color=THEIRS, height=BAR)
            axes.bar_label(drawn, [pair.theirs.told], padding=3)
        axes.bar_label(axes.barh(place + BAR / 2, pair.ours, color=OURS, height=BAR), [pair.told], padding=3)
    axes.set_yticks(range(len(field.pairs)), [pair.name for pair in field.pairs])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * max(max(pair.ours, pair.theirs.value if pair.theirs else 0.0) for pair in field.pairs))
    axes.grid(visible=False)
    axes.set_xlabel(field.unit)


def day(figures: Figures) -> Plot | None:
    """Requests, the workers that each class had for them, and how long the slowest took."""
    found = at(figures, "day", SERIES)
    if not found or not found["hour"]:
        return None
    classes = list(found["replicas"][0])
    with figure(height_in=5.6, rows=3) as (drawn, (load, workers, slowest)):
        load.fill_between(found["hour"], found["requests_per_s"], step="post", color=OURS, alpha=0.15, linewidth=0)
        load.step(found["hour"], found["requests_per_s"], where="post", color=OURS)
        load.set_ylabel("requests a second")
        for colour, name in zip(COLOURS, classes, strict=False):
            numbers = [each[name] for each in found["replicas"]]
            workers.step(found["hour"], numbers, where="post", color=colour, label=name)
        workers.set_ylabel("workers")
        workers.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
        for colour, label, key in ((COLOURS[1], "99th percentile", "p99_s"), (OURS, "median", "p50_s")):
            slowest.plot(found["hour"], _numbers(found[key]), color=colour, label=label)
        slowest.set_ylabel("seconds a run")
        for axes in (load, workers, slowest):
            axes.set_ylim(bottom=0)
            axes.set_xlim(0, 24)
            axes.set_xticks(range(0, 25, 3))
        slowest.set_xlabel("hour of the day")
        _name(workers)
        _name(slowest)
        note = "What comes; the workers of each class; runs of each ten minutes. A recorded day, in virtual time."
        return Plot("A day's load and its workers", svg(drawn), note=note)


def _name(axes: Axes, *handles: Patch) -> None:
    """Says above the field what its colours mean: those of its lines, or as told."""
    shown: dict[str, Any] = {"handles": handles} if handles else {}
    axes.legend(**shown, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, borderpad=0)


def _numbers(values: Sequence[float | None]) -> list[float]:
    """With a gap where nothing is known."""
    return [float("nan") if value is None else value for value in values]
