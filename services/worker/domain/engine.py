"""What a worker asks of an engine, whatever runs behind it: the port, its values, and its errors."""
# ruff: noqa: N818  the base class says that these are errors; their names say what happened

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from schemas.base import Json, Priority
from schemas.errors import ErrorCode
from schemas.usage import TokenUsage

HEALTH_TIMEOUT_S = 5.0
"""A running engine's health check takes no longer."""
FIRST_HEALTH_TIMEOUT_S = 60.0
"""The first one after a start may: a machine where much starts at once is slow."""
NO_TOKENS = TokenUsage()


class Call(NamedTuple):
    """One attempt of one step, handed to an engine."""

    task_id: str
    run_id: str
    step: str
    attempt: int
    tenant: str
    session: str | None
    input: Mapping[str, Json]
    deadline_s: float
    """Seconds left when it was handed over; an engine gives up by then."""
    priority: Priority = Priority.STANDARD
    """For an engine that queues: who goes first."""
    on_text: Callable[[str], None] | None = None
    """Called by an engine that streams with each piece of the text as it comes, on the event loop. It neither
    blocks nor raises. No engine has to call it: the result is the whole answer."""


class Result(NamedTuple):
    """What an engine answered: a JSON value, and the tokens it took."""

    output: Json
    usage: TokenUsage = NO_TOKENS


class EngineError(Exception):
    """A call that was not answered. The message is safe to show: no prompts, outputs or keys."""

    code: ErrorCode = ErrorCode.INTERNAL
    retryable: bool = False
    """Whether another attempt may help."""
    shed: bool = False
    """Whether the engine, not the call, is the trouble: send it less."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class CallerFault(EngineError):
    """The input is wrong: every attempt would fail the same way. The message names the field."""

    code = ErrorCode.INVALID_INPUT


class ContentTooLarge(CallerFault):
    """The input, or the answer to it, is more than the engine takes."""

    code = ErrorCode.CONTENT_TOO_LARGE


class DeadlineExceeded(EngineError):
    """The call's time was up; the work was stopped."""

    code = ErrorCode.DEADLINE_EXCEEDED


class EngineUnavailable(EngineError):
    """The engine cannot take work now: not started, asleep, overloaded or gone."""

    code = ErrorCode.ENGINE_UNAVAILABLE
    retryable = True
    shed = True


class EngineOverloaded(EngineUnavailable):
    """The engine has refused the call because it has too many: with fewer at once it may take it."""


class EngineEnded(EngineUnavailable):
    """The engine is gone, and cannot be started again in this process: another has to, and meanwhile others work."""


class EngineFailed(EngineError):
    """The engine took the call and failed; `retryable=False` where a repeat cannot help."""

    code = ErrorCode.ENGINE_FAILED

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class Load(NamedTuple):
    """What an engine has to do now, by its own count and whoever sent it."""

    running: int
    """Calls it works on."""
    waiting: int
    """Calls it has taken in and not begun, or has put back for want of memory."""
    kv_cache_use: float | None = None
    """The share of its KV-cache that is taken, 0–1; None where it has none, or does not say."""


Outcome = Result | EngineError
Origin = Literal["zero", "asleep"]
"""What an engine was before it was made ready."""


class Engine(Protocol):
    """A model, or whatever else answers calls, in one worker process."""

    @property
    def max_batch(self) -> int:
        """Calls that `infer` gains from taking together; 1 if it gains nothing."""

    async def start(self) -> None:
        """Return when usable; on a running engine do nothing, on a dead one heal it.

        EngineUnavailable says what is missing and how to get it; EngineEnded that no start here can help.
        """

    async def health(self, timeout_s: float = HEALTH_TIMEOUT_S) -> None:
        """A real, tiny inference in at most `timeout_s`; EngineUnavailable if it fails."""

    async def infer(self, calls: Sequence[Call]) -> Sequence[Outcome]:
        """One outcome per call, in their order: a bad call never fails its neighbours.

        Cancelling the awaiting task stops the engine's work on these calls.
        """

    async def sleep(self) -> None:
        """Unload: free the memory until `wake`. Idempotent; what still runs is stopped."""

    async def wake(self) -> None:
        """Load again after `sleep`; otherwise nothing."""

    async def stop(self) -> None:
        """End for good: no child, thread or connection is left. Idempotent."""


@runtime_checkable
class Measured(Protocol):
    """An engine that knows its own load. Those that do not are without this method."""

    async def measure(self) -> Load | None:
        """Cheap: asked about once a second while calls run. None where what runs behind it does not say after all.

        EngineError when it cannot be asked now.
        """
