"""A run's timeline as a waterfall: one row a step, one scale for all."""

from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING

from headway.cli.accounts import cost_by, stretches
from headway.cli.output import UNKNOWN, dollars, duration, line, safe
from headway.cli.timeline import StepTimeline, Timeline
from schemas.base import StepStatus
from schemas.responses import Timing

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

WIDTH = 40
COORDINATION, COLD, QUEUE, SERVICE, FAILED = "·", "▒", "░", "█", "×"
SHOWN_MS = 0.05
LEGEND = (
    f"{COORDINATION} coordination  {COLD} cold  {QUEUE} queue  {SERVICE} service  {FAILED} failed  * critical path"
)
STYLES = {
    "succeeded": "green",
    "partial": "yellow",
    "failed": "red",
    "blocked": "red",
    "expired": "red",
    "cancelled": "yellow",
}


def waterfall(run: Timeline) -> "Iterator[RenderableType]":
    """What `run show` prints, part by part."""
    from rich.text import Text

    name = run.pipeline if run.version is None else f"{run.pipeline}@{run.version}"
    yield Text.assemble(
        (f"{line(name)}  ", "bold"), (run.status, STYLES.get(run.status, "cyan")), f"  {duration(run.total_ms)}"
    )
    yield Text(f"run {run.run_id}  request {line(run.request_id)}  tenant {line(run.tenant)}", style="dim")
    if run.steps:
        yield _rows(run)
        yield Text(LEGEND, style="dim")
    yield from map(Text, _problems(run))
    yield from _critical(run)
    if run.response is not None or run.steps:
        yield Text(_cost(run))


def _rows(run: Timeline) -> "Table":
    from rich.table import Table
    from rich.text import Text

    rows = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("", "step", "by", f"0 {'─' * (WIDTH - 4)} {duration(run.total_ms)}", "status"):
        rows.add_column(heading)
    for heading in ("attempts", "cold", "queue", "service", "cost"):
        rows.add_column(heading, justify="right")
    costs = cost_by(run, lambda charge: charge.step)
    for step in run.steps:
        rows.add_row(
            "*" if step.critical else " ",
            Text(step.step, style="bold" if step.critical else ""),
            _by(step),
            bar(step, run.total_ms),
            Text(step.status, style=STYLES.get(step.status, "dim")),
            *_figures(step),
            dollars(costs[step.step]) if step.step in costs else "",
        )
    return rows


def _by(step: StepTimeline) -> str:
    """Who did it, and by which link of the chain if not the first."""
    who = step.model_class or step.kind.value
    backend = f".{step.backend}" if step.backend else ""
    return f"{who}{backend}" + (f" (fallback {step.fallback})" if step.fallback else "")


def _figures(step: StepTimeline) -> tuple[str, ...]:
    if step.model_class is None or not step.attempts:
        return ("", "", "", "")
    return (str(len(step.attempts)), *(duration(ms) for ms in (step.cold_ms, step.queue_ms, step.service_ms)))


def bar(step: StepTimeline, total_ms: float, width: int = WIDTH) -> str:
    """The step on the run's scale; an open one reaches to the end, an unbegun one is empty."""
    cells = [" "] * width
    scale = width / max(total_ms, 0.001)

    def paint(start_ms: float, end_ms: float, mark: str) -> None:
        first = min(width - 1, int(start_ms * scale))
        last = max(first + 1, min(width, ceil(end_ms * scale)))
        cells[first:last] = mark * (last - first)

    if step.enabled_ms is None or step.status in (StepStatus.SKIPPED, StepStatus.PENDING):
        return "".join(cells)
    paint(step.enabled_ms, total_ms if step.ended_ms is None else step.ended_ms, COORDINATION)
    for attempt in step.attempts:
        served_from = attempt.ended_ms - attempt.service_ms
        if attempt.cold_ms:
            paint(attempt.task_ms, attempt.task_ms + attempt.cold_ms, COLD)
        if attempt.queue_ms:
            paint(served_from - attempt.queue_ms, served_from, QUEUE)
        if attempt.service_ms:
            paint(served_from, attempt.ended_ms, SERVICE)
        if not attempt.succeeded:
            paint(attempt.ended_ms, attempt.ended_ms, FAILED)
    return "".join(cells)


def _problems(run: Timeline) -> Iterator[str]:
    for step in run.steps:
        if step.error is not None:
            yield f"{step.step}: {step.error.code}: {line(step.error.message)}"
    if run.response is not None and run.response.missing:
        yield f"missing: {', '.join(run.response.missing)}"
    if run.error is not None:
        yield f"error: {run.error.code}: {line(run.error.message)}"
    if run.cancelled_by is not None:
        yield f"cancelled by {line(run.cancelled_by)}"


def _critical(run: Timeline) -> "Iterator[RenderableType]":
    """The critical path, piece by piece: its last row is what the response says, which the others sum to."""
    from rich.table import Table
    from rich.text import Text

    if not run.critical_path:
        return
    yield Text(f"critical path: {path(run.critical_path)}")
    rows = Table(box=None, pad_edge=False, header_style="dim")
    rows.add_column("")
    for heading in ("queue", "cold", "service", "coordination"):
        rows.add_column(heading, justify="right")
    for stretch in stretches(run):
        parts = (stretch.queue_ms, stretch.cold_ms, stretch.service_ms, stretch.coordination_ms)
        rows.add_row(Text(safe(stretch.of)), *map(_part, parts))
    if run.response is not None:
        timing = run.response.timing
        sums = (timing.queue_ms, timing.cold_ms, timing.service_ms, timing.coordination_ms)
        rows.add_row(*(Text(text, style="bold") for text in (duration(timing.total_ms), *map(duration, sums))))
    yield rows


def _part(milliseconds: float | None) -> str:
    """Blank where there was nothing; log times are whole milliseconds, so that a part may be less than nothing."""
    if milliseconds is None:
        return UNKNOWN
    return duration(milliseconds) if milliseconds >= SHOWN_MS else ""


def _cost(run: Timeline) -> str:
    by_class = cost_by(run, lambda charge: charge.model_class)
    classes = " · ".join(f"{safe(name)} {dollars(cost)}" for name, cost in by_class.items())
    return f"cost {'' if run.response else 'so far '}{dollars(run.cost_usd)}" + (f": {classes}" if classes else "")


def components(timing: Timing) -> str:
    """The four parts of the critical path, which sum to the total."""
    parts = {"queue": timing.queue_ms, "cold": timing.cold_ms, "service": timing.service_ms}
    shown = " · ".join(f"{name} {duration(ms)}" for name, ms in parts.items())
    return f"{shown} · coordination {duration(timing.coordination_ms)}"


def path(steps: tuple[str, ...]) -> str:
    """`embed → retrieve → answer`."""
    return " → ".join(safe(step) for step in steps)
