"""Where a run's time and money went, piece by piece: pure. The pieces sum to what the response says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headway.cli.timeline import Charge, StepTimeline, Timeline

ADMISSION, END = "(admission)", "(end)"
"""What the plane itself does before the first step of the critical path, and after the last one."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of the critical path: a step, from when it was enabled until it was over. Milliseconds."""

    of: str
    queue_ms: float = 0.0
    cold_ms: float = 0.0
    service_ms: float = 0.0
    coordination_ms: float | None = None
    """All that remains, attempts before the last one included; None if nothing in the log says when it was over."""

    @property
    def known_ms(self) -> float:
        """Its parts together."""
        return self.queue_ms + self.cold_ms + self.service_ms + (self.coordination_ms or 0.0)


def stretches(run: Timeline) -> tuple[Stretch, ...]:
    """The run from its request to its outcome along the critical path, without a gap; nothing before a first step."""
    if not run.critical_path:
        return ()
    return tuple(_along(run))


def cost_by(run: Timeline, of: Callable[[Charge], str]) -> dict[str, float]:
    """Dollars by step or by model class, those of attempts that came to nothing included."""
    found: dict[str, float] = {}
    for charge in run.charges:
        found[of(charge)] = found.get(of(charge), 0.0) + charge.cost_usd
    return found


def _along(run: Timeline) -> Iterator[Stretch]:
    """Each step begins where the one before it was over: that is what made it the critical one."""
    steps = {step.step: step for step in run.steps}
    at_ms = run.opened_ms
    yield Stretch(ADMISSION, coordination_ms=at_ms)
    for name in run.critical_path:
        stretch = _stretch(steps[name], at_ms, run)
        at_ms += stretch.known_ms
        yield stretch
    if run.response is not None:
        yield Stretch(END, coordination_ms=run.total_ms - at_ms)


def _stretch(step: StepTimeline, began_ms: float, run: Timeline) -> Stretch:
    over_ms = step.ended_ms if step.ended_ms is not None or run.response is not None else run.total_ms
    parts = (0.0, 0.0, 0.0)
    if step.attempts:
        last = step.attempts[-1]
        parts = (last.queue_ms, last.cold_ms, last.service_ms)
    return Stretch(step.step, *parts, None if over_ms is None else over_ms - began_ms - sum(parts))
