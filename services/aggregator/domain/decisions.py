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
    abandoned: LogTime | None
    """The run's deadline, if attempts may still be on their way, queued or running, which nobody waits for any more:
    it tells workers which life of the run id is over.
    """


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Dead-letter the request at these coordinates; a response to it would be a second one."""

    request: RequestCoordinates
    reason: DeadLetterReason
    message: str


Decision = Dispatch | Finish | Publish | DeadLetter
