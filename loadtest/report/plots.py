"""The plots of one scenario, each made of its JSON; one whose figures are not there is left out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from loadtest.measure import SERIES
from loadtest.report.drawing import BAD, GRID, INK, figure, svg
from loadtest.report.drawing import SERIES as COLOURS
from loadtest.report.plot import Figures, Plot, at, bars, legend
from loadtest.report.scaling import day, published

LOG_FROM = 20.0
"""A scale is logarithmic where its greatest value is so many times its least."""
PERCENTILES = (0, 50, 90, 99, 99.9, 99.99, 99.999)
MAX_LANES = len(COLOURS)
PARTS = {
    "service": "in engines",
    "queue": "in queues",
    "cold": "cold starts",
    "coordination": "coordination",
    "client": "to and from the client",
}
"""Of `timing_ms`, as people say it."""


def plots(figures: Figures) -> Iterator[Plot]:
    """In the order in which people ask: how long, how much, when, what waited, where, and who paid."""
    for draw in _ALL:
        plot = draw(figures)
        if plot is not None:
            yield plot


def distribution(figures: Figures) -> Plot | None:
    """Latency by percentile; the tail is drawn as wide as the rest. Beside it the floor, and what was added."""
    curves = dict(_curves(figures))
    if not curves:
        return None
    with figure() as (drawn, (axes,)):
        for colour, points in zip(COLOURS, curves.values(), strict=False):
            axes.plot([_tail(percent) for percent, _ in points], [ms for _, ms in points], color=colour)
        if isinstance(ideal := figures.get("ideal_ms"), int | float):
            axes.axhline(ideal, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
            side = axes.get_yaxis_transform()
            axes.annotate(f"ideal {ideal:g} ms", (1, ideal), (0, 3), side, "offset points", ha="right")
        _latency_axis(axes, [ms for points in curves.values() for _, ms in points])
        _percentile_axis(axes, max(percent for points in curves.values() for percent, _ in points))
        return Plot("Latency distribution", svg(drawn), legend(curves))


def _curves(figures: Figures) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    run = at(figures, SERIES, "percentiles_ms")
    floor = at(figures, "floor", SERIES, "percentiles_ms")
    ideal = figures.get("ideal_ms")
    if run:
        yield "a run" if floor else "a request", run
    if run and floor and isinstance(ideal, int | float):
        yield "what the plane adds to the ideal", [(percent, max(ms - ideal, 0.001)) for percent, ms in run]
    if floor:
        yield "the floor: bare Kafka, as many hops", floor


def throughput(figures: Figures) -> Plot | None:
    """Requests that ended, second by second."""
    seconds = _whole_seconds(figures)
    if not seconds:
        return None
    completed, failed = seconds["completed"], seconds["failed"]
    with figure() as (drawn, (axes,)):
        at = _middles(completed)
        axes.fill_between(at, completed, color=COLOURS[0], alpha=0.15, linewidth=0)
        axes.plot(at, completed, color=COLOURS[0])
        shown = [("--s1", "completed")]
        if any(failed):
            axes.bar(at, failed, color=BAD, width=1.0)
            shown.append(("--bad", "failed"))
        _time_axis(axes)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("requests a second")
        return Plot("Throughput over time", svg(drawn), tuple(shown))


def latency_over_time(figures: Figures) -> Plot | None:
    """Median and tail of what completed in each second."""
    seconds = _whole_seconds(figures)
    known = [value for name in ("p50_ms", "p99_ms") for value in seconds.get(name, ()) if value is not None]
    if not known:
        return None
    with figure() as (drawn, (axes,)):
        for colour, name in ((COLOURS[0], "p50_ms"), (COLOURS[1], "p99_ms")):
            values = [float("nan") if value is None else value for value in seconds[name]]
            axes.plot(_middles(values), values, color=colour)
        _time_axis(axes)
        _latency_axis(axes, known)
        return Plot("Latency over time", svg(drawn), (("--s1", "median"), ("--s2", "99th percentile")))


def lag(figures: Figures) -> Plot | None:
    """Tasks behind, by lane; the eight lanes that were furthest behind."""
    found = at(figures, SERIES, "lag")
    tasks: Mapping[str, Sequence[int]] = found.get("tasks", {}) if found else {}
    if not tasks:
        return None
    lanes = sorted(tasks, key=lambda lane: -max(tasks[lane]))[:MAX_LANES]
    with figure() as (drawn, (axes,)):
        for colour, lane in zip(COLOURS, lanes, strict=False):
            axes.plot(found["at_s"], tasks[lane], color=colour)
        _time_axis(axes)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
        axes.set_ylabel("tasks")
        left_out = f"{len(tasks) - MAX_LANES} more lanes were behind by less." if len(tasks) > MAX_LANES else ""
        note = f"Appended, but not yet committed: waiting, running, or just done. {left_out}".strip()
        return Plot("Lag by lane", svg(drawn), legend(lanes), note)


def time_of_a_run(figures: Figures) -> Plot | None:
    """Where the time of the mean run went, as the responses tell."""
    timing = {part: float(figures.get("timing_ms", {}).get(part, 0.0)) for part in PARTS}
    shown = {part: ms for part, ms in timing.items() if ms > 0}
    if not shown:
        return None
    total = sum(shown.values())
    with figure(height_in=1.25) as (drawn, (axes,)):
        left = 0.0
        for colour, ms in zip(COLOURS, shown.values(), strict=False):
            axes.barh(0, ms, left=left, color=colour, height=0.8, edgecolor="none")
            left += ms
        axes.set_xlim(0, total)
        axes.set_yticks([])
        axes.grid(visible=False)
        axes.set_xlabel("milliseconds")
        names = tuple(
            (f"--s{number}", f"{PARTS[part]}: {ms:.3g} ms, {100 * ms / total:.1f} %")
            for number, (part, ms) in enumerate(shown.items(), 1)
        )
        return Plot("Where a run's time goes", svg(drawn), names, "The mean of all runs, along the critical path.")


def cpu(figures: Figures) -> Plot | None:
    """Who pays for a run, and what they hold."""
    costs: Mapping[str, float] = figures.get("cpu_ms_per_run") or {}
    if not costs:
        return None
    memory: Mapping[str, float] = figures.get("rss_mib") or {}
    parts = sorted(costs, key=lambda part: costs[part])
    with figure(height_in=max(1.6, 0.6 + 0.27 * len(parts)), columns=2) as (drawn, (left, right)):
        bars(left, parts, [costs[part] for part in parts], COLOURS[0], "CPU milliseconds a run")
        bars(right, parts, [memory.get(part, 0.0) for part in parts], COLOURS[2], "MiB resident")
        right.set_yticklabels([])
        note = f"All together {sum(costs.values()):.3g} ms of CPU a run, the load generator included."
        return Plot("CPU and memory by part", svg(drawn), (), note)


def _time_axis(axes: Axes) -> None:
    axes.set_xlabel("seconds")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))


def _latency_axis(axes: Axes, values: Sequence[float]) -> None:
    positive = [value for value in values if value > 0]
    if positive and max(positive) >= LOG_FROM * min(positive):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    axes.set_ylabel("milliseconds")


def _percentile_axis(axes: Axes, last: float) -> None:
    axes.set_xscale("log")
    shown = [percent for percent in PERCENTILES if percent <= last]
    axes.set_xticks([_tail(percent) for percent in shown], [f"{percent:g}" for percent in shown])
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    axes.grid(visible=True, axis="x", color=GRID)
    axes.set_xlabel("percentile")


def _tail(percent: float) -> float:
    """One in so many is slower: 99 % → 100."""
    return 100 / (100 - percent)


def _whole_seconds(figures: Figures) -> dict[str, list[Any]]:
    """Without the last one, which the load did not fill; nothing of less than two."""
    seconds = at(figures, SERIES, "seconds") or {}
    whole = {name: list(values)[:-1] for name, values in seconds.items()}
    return whole if whole.get("completed") else {}


def _middles(seconds: Sequence[Any]) -> list[float]:
    return [number + 0.5 for number in range(len(seconds))]


_ALL: tuple[Callable[[Figures], Plot | None], ...] = (
    distribution,
    throughput,
    latency_over_time,
    lag,
    time_of_a_run,
    cpu,
    published,
    day,
)
