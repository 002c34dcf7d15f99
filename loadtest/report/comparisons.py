"""The plots of scenarios that set one thing beside another, each made of keys that are its scenario's own."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator

from loadtest.report.drawing import INK, figure, svg
from loadtest.report.drawing import SERIES as COLOURS
from loadtest.report.plot import Figures, Plot, at, bars, legend

ISOLATION = {"separate workers": (), "a shared worker": ("shared",), "behind a backlog": ("backlog",)}
"""Where `isolation` has what, as people say it."""
GROWTH = {"fan_out": "steps side by side", "open_runs": "open runs"}


def comparisons(figures: Figures) -> Iterator[Plot]:
    """Those whose figures are there."""
    for draw in _ALL:
        plot = draw(figures)
        if plot is not None:
            yield plot


def peers(figures: Figures) -> Plot | None:
    """The same work on what else is used for it, in the same run; those that could not be had are left out."""
    systems = {"headway": figures.get("headway"), **(figures.get("peers") or {})}
    rates = {system: at(found, "throughput_per_s") for system, found in systems.items()}
    shown = sorted((system for system, rate in rates.items() if rate), key=lambda system: rates[system])
    if len(shown) < 2:
        return None
    added = [max(0.0, at(systems[system], "added_ms", "p50") or 0.0) for system in shown]
    with figure(height_in=max(1.6, 0.6 + 0.3 * len(shown)), columns=2) as (drawn, (left, right)):
        bars(left, shown, [rates[system] for system in shown], COLOURS[0], "runs a second")
        bars(right, shown, added, COLOURS[1], "milliseconds added to the ideal, one caller")
        right.set_yticklabels([])
        return Plot("Beside others", svg(drawn))


def workers(figures: Figures) -> Plot | None:
    """What more workers of one class get done, and what they would if nothing else had a limit."""
    rates = {int(count): at(found, "throughput_per_s") for count, found in figures.get("by_workers", {}).items()}
    if len(rates) < 2:
        return None
    counts, ideal = sorted(rates), figures.get("ideal_per_s")
    with figure() as (drawn, (axes,)):
        if ideal:
            axes.plot(counts, [count * ideal for count in counts], color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.plot(counts, [rates[count] for count in counts], color=COLOURS[0], marker="o", clip_on=False)
        axes.set_xticks(counts)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("workers")
        axes.set_ylabel("requests a second")
        note = "Dashed: what their slots could do." if ideal else ""
        return Plot("Throughput by workers", svg(drawn), note=note)


def isolation(figures: Figures) -> Plot | None:
    """The tail of quick calls, alone and beside others."""
    pairs = {
        name: (at(figures, *path, "idle_p99_ms"), at(figures, *path, "loaded_p99_ms"))
        for name, path in ISOLATION.items()
    }
    shown = {name: pair for name, pair in pairs.items() if None not in pair}
    if not shown:
        return None
    with figure(height_in=1.0 + 0.6 * len(shown)) as (drawn, (axes,)):
        for index, colour in ((0, COLOURS[0]), (1, COLOURS[1])):
            values = [pair[index] for pair in shown.values()]
            drawn_bars = axes.barh([n + 0.36 * index for n in range(len(shown))], values, color=colour, height=0.34)
            axes.bar_label(drawn_bars, [f"{value:.3g}" for value in values], padding=3)
        axes.set_yticks([n + 0.18 for n in range(len(shown))], list(shown))
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.set_xlabel("99th percentile, milliseconds")
        return Plot("One kind of work beside another", svg(drawn), legend(("alone", "beside the other")))


def growth(figures: Figures) -> Plot | None:
    """What a run costs when there is more of it, or more of them."""
    found = {label: figures.get(key) for key, label in GROWTH.items()}
    groups = {label: group for label, group in found.items() if isinstance(group, Mapping) and len(_sizes(group)) > 1}
    if not groups:
        return None
    with figure(columns=len(groups)) as (drawn, fields):
        for axes, (label, group) in zip(fields, groups.items(), strict=True):
            _growth(axes, label, group)
        fields[0].set_ylabel("milliseconds")
        names = ("median latency", "CPU of a run, all parts")
        return Plot("Growth of cost", svg(drawn), legend(names), "Both scales are logarithmic.")


def _growth(axes: Axes, label: str, group: Mapping[str, Figures]) -> None:
    sizes = _sizes(group)
    for colour, path in ((COLOURS[0], ("latency_ms", "p50")), (COLOURS[1], ("cpu_ms_per_run", "all"))):
        axes.plot(
            sizes,
            [at(group, str(size), *path) or float("nan") for size in sizes],
            color=colour,
            marker="o",
            clip_on=False,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    for minor in (axes.xaxis, axes.yaxis):
        minor.set_minor_formatter(FuncFormatter(lambda *_: ""))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:g}"))
    axes.set_xlabel(label)


def _sizes(group: Mapping[str, Figures]) -> Sequence[int]:
    """Ascending; more than nothing, for a logarithmic scale."""
    return sorted(int(size) for size in group if size.isdigit() and int(size) > 0)


_ALL: tuple[Callable[[Figures], Plot | None], ...] = (peers, workers, isolation, growth)
