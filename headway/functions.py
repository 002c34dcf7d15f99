"""What a function engine's callable is given, and how it refuses: all that an author imports.

    async def lookup(input: LookupIn, ctx: StepContext) -> LookupOut: ...

Both models are pydantic. A plain `def` runs in a thread. A module may also have `warm_up(home: Path)`, called once
before the first call, and `health()`, which raises when the function cannot work.
"""

from dataclasses import dataclass, field
from threading import Event

from schemas.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class StepContext:
    """The call around an input."""

    run_id: str
    step: str
    attempt: int
    tenant: str
    session: str | None
    deadline_s: float
    """Seconds left when the call began."""
    cancelled: Event = field(default_factory=Event, repr=False, compare=False)
    """Set when nobody waits any more: a long plain `def` looks at it, for a thread cannot be stopped."""

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of a step: hand it to whatever must not act twice."""
        return f"{self.run_id}/{self.step}"


class StepError(Exception):
    """Raised by a function to say why it cannot answer, in its own words: they are shown to the caller."""

    def __init__(self, message: str, *, retryable: bool = False, code: ErrorCode = ErrorCode.ENGINE_FAILED) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.code = code
