"""How `headway top` looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from headway.cli.output import UNKNOWN, dollars, duration, line
from headway.cli.picture import LaneNow, Picture, PipelineNow

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

PIPELINE_COLUMNS = ("pipeline", "runs/s", "p50", "p95", "promised", "partial", "failed", "$/hour", "$/run")
LANE_COLUMNS = (
    "class", "lane", "behind", "oldest", "tasks/s", "waits p50", "p95", "failed",
    "busy", "engine p50", "p95", "replicas",
)  # fmt: skip
OF_THE_QUEUE = 4
"""The last columns of a lane, that all lanes of its class share: told once."""

Figure = TypeVar("Figure", int, float)


def drawn(seen: Picture) -> Iterator[RenderableType]:
    """The screen, part by part."""
    from rich.text import Text

    yield Text(_summary(seen), style="bold")
    if seen.silent:
        yield Text(f"no answer from {', '.join(seen.silent)}: what only they know is {UNKNOWN}", style="red")
    if seen.pipelines:
        yield _table(PIPELINE_COLUMNS, 1, [_pipeline(row) for row in seen.pipelines])
    shown = busy_lanes(seen.lanes)
    if shown:
        yield _table(LANE_COLUMNS, 2, list(_lanes(shown)))
    if len(shown) < len(seen.lanes):
        yield Text(f"{len(seen.lanes) - len(shown)} lanes have nothing to do", style="dim")


def busy_lanes(lanes: Sequence[LaneNow]) -> list[LaneNow]:
    """Without lanes that are known to have nothing to do; a class of only such keeps its first."""
    shown: list[LaneNow] = []
    for _, group in groupby(lanes, key=lambda lane: lane.model_class):
        of_class = list(group)
        shown.extend([lane for lane in of_class if not lane.quiet] or of_class[:1])
    return shown


def _summary(seen: Picture) -> str:
    asleep = UNKNOWN if seen.asleep is None else ", ".join(map(line, seen.asleep)) or "nothing"
    runs = _known(seen.open_runs, _count)
    cost, idle = (_known(usd, dollars) for usd in (seen.cost_usd_per_hour, seen.idle_usd_per_hour))
    return f"last {seen.window_s:.0f} s · {runs} open runs · {cost} per hour, {idle} of it idle · asleep: {asleep}"


def _pipeline(row: PipelineNow) -> tuple[str, ...]:
    return (
        line(row.pipeline),
        _known(row.runs_per_second, _rate),
        *(_known(ms, duration) for ms in (row.p50_ms, row.p95_ms, row.promised_ms)),
        *(_known(share, _percent) for share in (row.partial_share, row.failed_share)),
        *(_known(cost, dollars) for cost in (row.cost_usd_per_hour, row.cost_usd_per_run)),
    )


def _lanes(lanes: Sequence[LaneNow]) -> Iterator[tuple[str, ...]]:
    told = None
    for row in lanes:
        yield *_lane(row), *(_queue(row) if row.model_class != told else ("",) * OF_THE_QUEUE)
        told = row.model_class


def _lane(row: LaneNow) -> tuple[str, ...]:
    return (
        line(row.model_class),
        row.lane,
        _known(row.tasks_behind, _count),
        _known(row.seconds_behind, _seconds),
        _known(row.tasks_per_second, _rate),
        *(_known(ms, duration) for ms in (row.wait_p50_ms, row.wait_p95_ms)),
        _known(row.failed_share, _percent),
    )


def _queue(row: LaneNow) -> tuple[str, ...]:
    busy, slots = _known(row.busy_slots, _count), _known(row.slots, _count)
    states = UNKNOWN if row.replicas is None else ", ".join(f"{n} {state}" for state, n in row.replicas.items() if n)
    return (
        f"{busy}/{slots}",
        *(_known(ms, duration) for ms in (row.service_p50_ms, row.service_p95_ms)),
        states or "0",
    )


def _table(headings: Sequence[str], texts: int, rows: Sequence[Sequence[str]]) -> Table:
    """The first `texts` columns are names, and the others figures."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="dim")
    for position, heading in enumerate(headings):
        shown.add_column(heading, justify="left" if position < texts else "right", no_wrap=True)
    for row in rows:
        shown.add_row(*map(Text, row))
    return shown


def _known(value: Figure | None, shown: Callable[[Figure], str]) -> str:
    return UNKNOWN if value is None else shown(value)


def _count(value: int) -> str:
    return f"{value:,}"


def _rate(per_second: float) -> str:
    return f"{per_second:,.1f}" if per_second >= 10 or not per_second else f"{per_second:.2f}"


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _seconds(value: float) -> str:
    return duration(value * 1_000)
