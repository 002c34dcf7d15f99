"""The twin of the claims in Redis: one store that several owners share, on a clock that a test may hold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from schemas.base import LogTime
from services.worker.domain.ports import DEATHS, LEASE_S, MEMORY_S, Answer, Claim, ClaimsUnavailable, Done, Verdict

_DONE = "done"
_NOBODY = "-"


@dataclass(slots=True)
class _Entry:
    attempt: int
    holder: str
    ends_at: float
    deaths: int = 0
    """Of earlier holders."""
    alone: bool = False
    """Its holder runs nothing else."""

    @property
    def verdict(self) -> Verdict:
        """Of a holder that claims it."""
        return Verdict.ALONE if self.alone or self.deaths >= DEATHS else Verdict.RUN


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
        """The entry of a claim's step while its lease lasts."""
        entry = self.find(claim)
        return entry if entry is not None and entry.ends_at > self.now_s() else None

    def find(self, claim: Claim) -> _Entry | None:
        """The entry of a claim's step, and for a while after its lease has ended."""
        entry = self._entries.get(_key(claim))
        if entry is None:
            return None
        memory_s = 0.0 if entry.holder == _DONE else MEMORY_S
        return entry if entry.ends_at + memory_s > self.now_s() else None

    def put(self, claim: Claim, holder: str, for_s: float, *, deaths: int = 0, alone: bool = False) -> _Entry:
        """Writes an entry that ends."""
        entry = _Entry(claim.attempt, holder, self.now_s() + for_s, deaths, alone)
        self._entries[_key(claim)] = entry
        return entry

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
            if (entry := self._mine(claim)) is not None:
                entry.ends_at = self._shelf.now_s() + LEASE_S
            elif self._shelf.find(claim) is None:
                self._shelf.put(claim, self._owner, LEASE_S)
        return [self._shelf.is_over(claim) for claim in claims]

    async def isolate(self, claim: Claim) -> bool:
        self._reach()
        if self._mine(claim) is None and self._shelf.find(claim) is not None:
            return False
        self._shelf.put(claim, self._owner, LEASE_S, alone=True)
        return True

    async def finish(self, done: Sequence[Done]) -> None:
        self._reach()
        for claim, keep_s in done:
            entry = self._shelf.find(claim)
            if entry is None or entry.attempt <= claim.attempt:
                self._shelf.put(claim, _DONE, keep_s)

    async def release(self, claims: Sequence[Claim]) -> None:
        self._reach()
        for claim in claims:
            if (entry := self._mine(claim)) is not None:
                deaths = DEATHS if entry.alone else entry.deaths
                self._shelf.put(claim, _NOBODY, 0.0, deaths=deaths)

    def _mine(self, claim: Claim) -> _Entry | None:
        entry = self._shelf.find(claim)
        ours = entry is not None and (entry.attempt, entry.holder) == (claim.attempt, self._owner)
        return entry if ours else None

    def _claim(self, claim: Claim) -> Answer:
        if self._shelf.is_over(claim):
            return Answer(Verdict.DEAD)
        entry = self._shelf.find(claim)
        if entry is None or entry.attempt < claim.attempt:
            return Answer(self._shelf.put(claim, self._owner, LEASE_S).verdict)
        if entry.attempt > claim.attempt or entry.holder == _DONE:
            return Answer(Verdict.DONE)
        is_another = entry.holder not in (self._owner, _NOBODY)
        if is_another and entry.ends_at > self._shelf.now_s():
            return Answer(Verdict.HELD, entry.ends_at - self._shelf.now_s())
        ours = self._shelf.put(claim, self._owner, LEASE_S, deaths=entry.deaths + is_another, alone=entry.alone)
        return Answer(Verdict.POISON if is_another and ours.alone else ours.verdict)

    def _reach(self) -> None:
        if self._shelf.away:
            raise ClaimsUnavailable("away")
