"""The twin of the claims in Redis: one store that several owners share, on a clock that a test may hold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from schemas.base import LogTime
from services.worker.domain.ports import LEASE_S, Answer, Claim, ClaimsUnavailable, Done, Verdict

_DONE = "done"


@dataclass(slots=True)
class _Entry:
    attempt: int
    holder: str
    ends_at: float


@dataclass
class Shelf:
    """What Redis would hold."""

    now_s: Callable[[], float]
    dead: dict[str, LogTime] = field(default_factory=dict)
    """Runs that are over, by their deadlines."""
    away: bool = False
    """Every call fails while this is set."""
    _entries: dict[tuple[str, str, LogTime], _Entry] = field(default_factory=dict)

    def get(self, claim: Claim) -> _Entry | None:
        """The live entry of a claim's step."""
        entry = self._entries.get(_key(claim))
        return entry if entry is not None and entry.ends_at > self.now_s() else None

    def put(self, claim: Claim, holder: str, for_s: float) -> None:
        """Writes an entry that ends."""
        self._entries[_key(claim)] = _Entry(claim.attempt, holder, self.now_s() + for_s)

    def drop(self, claim: Claim) -> None:
        """Removes the entry."""
        self._entries.pop(_key(claim), None)

    def flush(self) -> None:
        """Loses everything, as Redis may."""
        self._entries.clear()
        self.dead.clear()

    def is_over(self, claim: Claim) -> bool:
        """Whether the run of a claim is."""
        return self.dead.get(claim.run_id) == claim.deadline_at


def _key(claim: Claim) -> tuple[str, str, LogTime]:
    return claim.run_id, claim.step, claim.deadline_at


class InMemoryClaimStore:
    """The claims of one owner on a shelf."""

    def __init__(self, shelf: Shelf, owner: str) -> None:
        self._shelf = shelf
        self._owner = owner

    async def claim(self, claims: Sequence[Claim]) -> Sequence[Answer]:
        self._reach()
        return [self._claim(claim) for claim in claims]

    async def renew(self, claims: Sequence[Claim]) -> Sequence[bool]:
        self._reach()
        for claim in claims:
            entry = self._shelf.get(claim)
            if entry is None or (entry.attempt, entry.holder) == (claim.attempt, self._owner):
                self._shelf.put(claim, self._owner, LEASE_S)
        return [self._shelf.is_over(claim) for claim in claims]

    async def finish(self, done: Sequence[Done]) -> None:
        self._reach()
        for claim, keep_s in done:
            entry = self._shelf.get(claim)
            if entry is None or entry.attempt <= claim.attempt:
                self._shelf.put(claim, _DONE, keep_s)

    async def release(self, claims: Sequence[Claim]) -> None:
        self._reach()
        for claim in claims:
            entry = self._shelf.get(claim)
            if entry is not None and (entry.attempt, entry.holder) == (claim.attempt, self._owner):
                self._shelf.drop(claim)

    def _claim(self, claim: Claim) -> Answer:
        if self._shelf.is_over(claim):
            return Answer(Verdict.DEAD)
        entry = self._shelf.get(claim)
        if entry is not None and entry.attempt >= claim.attempt:
            if entry.attempt > claim.attempt or entry.holder == _DONE:
                return Answer(Verdict.DONE)
            if entry.holder != self._owner:
                return Answer(Verdict.HELD, entry.ends_at - self._shelf.now_s())
        self._shelf.put(claim, self._owner, LEASE_S)
        return Answer(Verdict.RUN)

    def _reach(self) -> None:
        if self._shelf.away:
            raise ClaimsUnavailable("away")
