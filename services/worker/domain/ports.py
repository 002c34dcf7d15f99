"""What a worker asks of a store it does not trust: who runs a step now, and which runs are over."""

from collections.abc import AsyncIterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from schemas.base import LogTime
from schemas.redis_keys import EndedRun
from schemas.text import TextPiece

LEASE_S = 8.0
"""How long a claim lasts without renewal: after a worker's death its tasks wait that long at most."""
MEMORY_S = 300.0
"""How much longer a claim is remembered whose holder died: its task comes again sooner, to be claimed by another."""
DEATHS = 2
"""Holders that a task may lose before it is suspected to kill them."""


class Claim(NamedTuple):
    """The right to run one attempt of a step; a newer attempt takes it from an older one."""

    run_id: str
    step: str
    attempt: int
    deadline_at: LogTime
    """Of the run: another one in each life of its id."""


class Verdict(Enum):
    """What a claim was answered."""

    RUN = "run"
    """It is ours."""
    ALONE = "alone"
    """It is ours, but its holders died: it may only run alone, and after `isolate`."""
    POISON = "poison"
    """It is ours to put aside: its last holder died while it ran nothing else."""
    HELD = "held"
    """Another live worker runs this attempt."""
    DONE = "done"
    """This attempt's result is in the log, or a newer attempt has begun."""
    DEAD = "dead"
    """The run is over."""

    @property
    def is_ours(self) -> bool:
        """Whether the claim was made."""
        return self in (Verdict.RUN, Verdict.ALONE, Verdict.POISON)


class Answer(NamedTuple):
    """To a claim. `wait_s`: until the lease of the one that holds it ends."""

    verdict: Verdict
    wait_s: float = 0.0


class Done(NamedTuple):
    """An attempt whose result is in the log, remembered for as long as a repeat of it could run."""

    claim: Claim
    keep_s: float


class ClaimsUnavailable(Exception):  # noqa: N818  it says what is wrong
    """The store did not answer. Work goes on without claims: the first result in the log wins."""


class ClaimStore(Protocol):
    """Claims of one owner. Each method is one round trip, answers in the order asked; all raise ClaimsUnavailable."""

    async def claim(self, claims: Sequence[Claim]) -> Sequence[Answer]:
        """Takes what is free, held by an older attempt, or already ours, for LEASE_S.

        A lease that ended without `finish` or `release` is the death of its holder, and is counted.
        """

    async def isolate(self, claim: Claim) -> bool:
        """Notes that its holder runs nothing else from now on; False when it is not ours any more."""

    async def renew(self, claims: Sequence[Claim]) -> Sequence[bool]:
        """Holds them for LEASE_S more, also those that were lost with the store; whether the run of each is over."""

    async def finish(self, done: Sequence[Done]) -> None:
        """Marks them done, unless a newer attempt has begun."""

    async def release(self, claims: Sequence[Claim]) -> None:
        """Gives up what is still ours, so that nobody waits for the lease to end, and no death is counted."""


class DeadRuns(Protocol):
    """The feed of runs that are over. Best effort: what is said while nobody listens is lost."""

    def follow(self) -> AsyncIterator[EndedRun]:
        """Runs as they end, without end: a lost connection is made again."""


class TextLost(Exception):  # noqa: N818  it says what has happened
    """The channel may not have taken the text. Nobody has to care: the whole answer is in the log."""


class TextChannel(Protocol):
    """Where text goes as it comes, for whoever listens at the time."""

    async def publish(self, pieces: Sequence[TextPiece]) -> None:
        """All of them, in one go; raises TextLost."""
