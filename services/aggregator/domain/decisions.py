"""What the fold wants done. Values: the shell acts on them, and acts on none below its commit."""

from dataclasses import dataclass

from schemas.base import LogTime
from schemas.errors import DeadLetterReason
from schemas.events import RequestCoordinates, RunFinished
from schemas.joins import StepReady
from services.aggregator.domain.state import Run


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Publish this `step-ready`."""

    ready: StepReady


@dataclass(frozen=True, slots=True)
class Finish:
    """Evaluate the output mapping and append `run-finished`."""

    run: Run


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish the response and the usage record of the winning `run-finished`, verbatim."""

    finished: RunFinished
    deadline_at: LogTime | None
    """The run's, by which workers know which life of its id is over; None for a rejected run, which had no tasks."""
    run: Run
    """As it was when that came."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Dead-letter the request at these coordinates; a response to it would be a second one."""

    request: RequestCoordinates
    reason: DeadLetterReason
    message: str


Decision = Dispatch | Finish | Publish | DeadLetter
