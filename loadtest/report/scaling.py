"""Plots of what was simulated in virtual time: a cold cascade beside the published one, and a day of workers."""

from matplotlib.ticker import MaxNLocator

from loadtest.measure import SERIES
from loadtest.report.drawing import SERIES as COLOURS
from loadtest.report.drawing import figure, svg
from loadtest.report.plot import Figures, Plot, at, bars, legend
from loadtest.virtual.paper import CASCADE

STEPS = {
    "sequential_s": "one load after the other",
    "prewarmed_s": "pre-warmed",
    "standby_s": "from standby",
}


def cascade(figures: Figures) -> Plot | None:
    """Seconds to the answer of one request that finds everything cold."""
    found = at(figures, "cascade")
    if not found:
        return None
    ours = [(f"ours, {text}", float(found[key])) for key, text in STEPS.items() if key in found]
    published = [(f"published, {STEPS[key]}", value) for key, value in CASCADE.items()]
    names, values = zip(*reversed([*published, *ours]), strict=True)
    with figure(height_in=2.0) as (drawn, (axes,)):
        bars(axes, names, values, COLOURS[0], "seconds to the answer")
        return Plot("A cold cascade", svg(drawn), (), "Load times are the published ones, and time is virtual.")


def day(figures: Figures) -> Plot | None:
    """Requests, and the workers that each class had for them."""
    found = at(figures, "day", SERIES)
    if not found or not found["hour"]:
        return None
    classes = list(found["replicas"][0])
    with figure(columns=2) as (drawn, (left, right)):
        left.fill_between(found["hour"], found["requests_per_s"], color=COLOURS[0], alpha=0.15, linewidth=0)
        left.plot(found["hour"], found["requests_per_s"], color=COLOURS[0])
        left.set_ylabel("requests a second")
        for colour, name in zip(COLOURS, classes, strict=False):
            right.step(found["hour"], [each[name] for each in found["replicas"]], where="post", color=colour)
        right.set_ylabel("workers")
        right.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
        for axes in (left, right):
            axes.set_ylim(bottom=0)
            axes.set_xlim(0, 24)
            axes.set_xticks(range(0, 25, 6))
            axes.set_xlabel("hour of the day")
        note = "On the left what comes, on the right the workers of each class. A day of virtual time."
        return Plot("A day's load and its workers", svg(drawn), legend(classes), note)
