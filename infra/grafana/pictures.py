"""Draws what panels of the dashboards show, by their own queries, for pages that cannot show Grafana itself.

python -m infra.grafana.pictures http://localhost:9090 docs/pictures 10

writes one SVG a picture into that folder: of the last ten minutes, readable by day and by night.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from infra.grafana.queries import Document, documents, panels, substituted
from loadtest.report.drawing import SERIES as COLOURS
from loadtest.report.drawing import figure, standing_alone, svg

PICTURES = {
    "lag": ("headway-lag", ("Seconds behind, interactive", "Seconds behind, standard and batch")),
    "latency": ("headway-latency", ("A task waits, p95", "Where a run's time goes")),
    "cost": ("headway-cost", ("Per hour, by pipeline", "Per hour, by model class")),
}
"""By name: the dashboard, and its panels side by side."""

SIZE_IN = (11.0, 2.8)
STEP_S = 5
"""As often as Prometheus scrapes."""
TIMEOUT_S = 30.0
MINUTE_S = 60
UNITS = {"s": "{:g} s", "currencyUSD": "${:g}"}


class Line(NamedTuple):
    """One series of a panel: a value for each step, NaN where there is none."""

    name: str
    values: list[float]


class Window(NamedTuple):
    """What a picture shows, in seconds since 1970."""

    start: int
    end: int

    @property
    def moments(self) -> range:
        """Those that have a value."""
        return range(self.start, self.end + 1, STEP_S)


def pictures(client: httpx.Client, window: Window) -> dict[str, str]:
    """By name. Raises httpx.HTTPError, and ValueError if a panel has nothing to show."""
    found = documents()
    return {name: _picture(client, found[uid], titles, window) for name, (uid, titles) in PICTURES.items()}


def _picture(client: httpx.Client, dashboard: Document, titles: Sequence[str], window: Window) -> str:
    by_title = {panel["title"]: panel for panel in panels(dashboard)}
    with figure(columns=len(titles)) as (drawn, fields):
        drawn.set_size_inches(*SIZE_IN)
        for axes, title in zip(fields, titles, strict=True):
            _draw(axes, by_title[title], lines(client, by_title[title], window), window)
        return standing_alone(svg(drawn))


def lines(client: httpx.Client, panel: Document, window: Window) -> list[Line]:
    """What the panel's queries say, the greatest first, without those that stay at 0 if others do not.

    As many as there are colours. Raises ValueError if there are none.
    """
    found = [line for target in panel["targets"] for line in _answered(client, target, window)]
    if not found:
        raise ValueError(f"{panel['title']}: nothing to show")
    risen = [line for line in found if _peak(line) > 0] or found
    return sorted(risen, key=lambda line: (-_peak(line), line.name))[: len(COLOURS)]


def _answered(client: httpx.Client, target: Mapping[str, str], window: Window) -> list[Line]:
    asked: dict[str, str | int] = {
        "query": substituted(target["expr"]),
        "start": window.start,
        "end": window.end,
        "step": STEP_S,
    }
    answer = client.get("/api/v1/query_range", params=asked).raise_for_status().json()
    return [
        Line(_called(target["legendFormat"], series["metric"]), _by_moment(series["values"], window))
        for series in answer["data"]["result"]
    ]


def _called(legend: str, labels: Mapping[str, str]) -> str:
    for label, value in labels.items():
        legend = legend.replace("{{" + label + "}}", value)
    return legend


def _by_moment(values: Sequence[tuple[float, str]], window: Window) -> list[float]:
    known = {int(moment): float(value) for moment, value in values}
    return [known.get(moment, math.nan) for moment in window.moments]


def _peak(line: Line) -> float:
    return max((value for value in line.values if not math.isnan(value)), default=0.0)


def _draw(axes: Axes, panel: Document, shown: Sequence[Line], window: Window) -> None:
    minutes = [(moment - window.start) / MINUTE_S for moment in window.moments]
    defaults = panel["fieldConfig"]["defaults"]
    if defaults["custom"]["stacking"]["mode"] == "normal":
        stacked = [[0.0 if math.isnan(value) else value for value in line.values] for line in shown]
        axes.stackplot(minutes, stacked, labels=[line.name for line in shown], colors=COLOURS, alpha=0.7)
    else:
        for colour, line in zip(COLOURS, shown, strict=False):
            axes.plot(minutes, line.values, color=colour, label=line.name)
    axes.set_title(panel["title"], loc="left")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("minutes")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: UNITS[defaults["unit"]].format(value)))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)


def now(client: httpx.Client) -> int:
    """By the clock of Prometheus."""
    answer = client.get("/api/v1/query", params={"query": "time()"}).raise_for_status().json()
    return int(float(answer["data"]["result"][1]))


def main() -> None:
    """Writes them."""
    address, folder, minutes = sys.argv[1:]
    with httpx.Client(base_url=address, timeout=TIMEOUT_S) as client:
        end = now(client)
        drawn = pictures(client, Window(end - int(minutes) * MINUTE_S, end))
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, text in drawn.items():
        (Path(folder) / f"{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
