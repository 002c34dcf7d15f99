"""What `headway scale` shows: pure. What cannot be read is None, never 0."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.cli.exits import CliError, Exit
from schemas.fleet import ScalingDecision, Term, WorkerStatus
from schemas.models import Queue
from services.autoscaler.domain.replicas import replicas
from services.chassis.fleet import in_force

NOBODY_LEADS = "no autoscaler leads: nothing is decided until one is up; see `headway doctor`"


@dataclass(frozen=True, slots=True)
class ScaleRow:
    """One queue: how many workers it is to have, and has."""

    queue: str
    desired: int | None
    warm: int
    starting: int
    asleep: int
    unplaced: int | None
    """Of those desired, asleep ones included, for which no host has room."""
    lag_seconds: float | None
    """What waits and runs, in seconds that the workers need for it; unknown without one."""
    because: str


def rows(
    queues: Iterable[Queue], decisions: Sequence[ScalingDecision], workers: Sequence[WorkerStatus]
) -> list[ScaleRow]:
    """Every queue of the configuration. Raises CliError when nobody has decided anything."""
    decided = led(decisions)
    return [_row(queue, decided.get(queue.label), replicas(queue, workers)) for queue in queues]


def terms(name: str, decisions: Sequence[ScalingDecision]) -> tuple[Term, ...]:
    """The account of the decision about one queue. Raises CliError when there is none."""
    decided = led(decisions)
    if name not in decided:
        raise CliError(f"nothing is decided about {name!r}; there are {', '.join(sorted(decided))}", Exit.NOT_FOUND)
    return decided[name].terms


def led(decisions: Sequence[ScalingDecision]) -> Mapping[str, ScalingDecision]:
    """By queue label, what the one that leads has decided. Raises CliError when nobody does."""
    if not decisions:
        raise CliError(NOBODY_LEADS, Exit.UNREACHABLE)
    return in_force(decisions)


def _row(queue: Queue, decision: ScalingDecision | None, states: Mapping[str, int]) -> ScaleRow:
    return ScaleRow(
        queue=queue.label,
        desired=decision.replicas if decision else None,
        warm=states["warm"],
        starting=states["starting"],
        asleep=states["asleep"],
        unplaced=decision.unplaced if decision else None,
        lag_seconds=decision.lag_s if decision else None,
        because=decision.because if decision else "nothing is known of it yet",
    )
