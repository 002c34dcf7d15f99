"""The claims of several workers that die, freeze and stop in order, on a store that may lose everything."""

import asyncio
from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.worker.adapters.memory_claims import InMemoryClaimStore, Shelf
from services.worker.domain.ports import DEATHS, LEASE_S, MEMORY_S, Answer, Claim, Done, Verdict

OWNERS = st.sampled_from(["a", "b", "c"])
ATTEMPTS = st.sampled_from([1, 2])
LONG_S = 1_000_000.0


def claim_of(attempt: int) -> Claim:
    return Claim("run", "step", attempt, deadline_at=9_000)


class ClaimProtocol(RuleBasedStateMachine):
    """One step and its attempts. The model knows who works on it, and who died of it, from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.shelf = Shelf(lambda: self.now)
        self.born: Counter[str] = Counter()
        self.working: dict[str, tuple[int, bool, float]] = {}
        """By owner: its attempt, whether it is alone, and when it last heard that the claim is its own."""
        self.deaths: Counter[int] = Counter()
        self.died_alone: set[int] = set()
        self.done: set[int] = set()
        self.newest = 0
        self.flushed = False

    @initialize(deaths=st.integers(0, DEATHS))
    def begins_after_deaths(self, deaths: int) -> None:
        """The way to what follows is long otherwise."""
        for _ in range(deaths):
            self.claims("a", 1)
            self.loses_a_worker("a")
            self.time_passes(LEASE_S)

    def store(self, owner: str) -> InMemoryClaimStore:
        """An owner that died comes back as another one."""
        return InMemoryClaimStore(self.shelf, f"{owner}{self.born[owner]}")

    @rule(owner=OWNERS, attempt=ATTEMPTS)
    def claims(self, owner: str, attempt: int) -> None:
        if owner in self.working:
            self.claims_again(owner)
            return
        [answer] = asyncio.run(_claim(self.store(owner), attempt))
        self.check(answer, attempt)
        if answer.verdict.is_ours:
            self.newest = max(self.newest, attempt)
            self.working[owner] = (attempt, False, self.now)
        if answer.verdict is Verdict.POISON:
            self.put_aside(owner, attempt)

    def claims_again(self, owner: str) -> None:
        """The task came again to the worker that has it."""
        attempt, *_ = self.working[owner]
        [answer] = asyncio.run(_claim(self.store(owner), attempt))
        expected = Verdict.ALONE if self.deaths[attempt] >= DEATHS else Verdict.RUN
        assert answer.verdict is expected or self.taken_over(owner)

    def check(self, answer: Answer, attempt: int) -> None:
        """What each answer says about the past."""
        verdict = answer.verdict
        if attempt in self.done or attempt < self.newest:
            assert verdict is Verdict.DONE or self.flushed
        if verdict is Verdict.DONE:
            assert attempt in self.done or attempt < self.newest
        if verdict is Verdict.HELD:
            assert 0 < answer.wait_s <= LEASE_S
        if verdict is Verdict.RUN:
            assert self.deaths[attempt] < DEATHS or self.flushed
        if verdict.is_ours and attempt in self.died_alone:
            assert verdict is Verdict.POISON or self.flushed
        if verdict is Verdict.ALONE:
            assert self.deaths[attempt] >= DEATHS
        if verdict is Verdict.POISON:
            assert attempt in self.died_alone

    def put_aside(self, owner: str, attempt: int) -> None:
        asyncio.run(self.store(owner).finish([Done(claim_of(attempt), LONG_S)]))
        self.done.add(attempt)
        del self.working[owner]

    @precondition(lambda self: self.suspects)
    @rule(data=st.data())
    def isolates(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.suspects))
        attempt = self.working[owner][0]
        if asyncio.run(self.store(owner).isolate(claim_of(attempt))):
            self.working[owner] = (attempt, True, self.now)
        else:
            assert self.taken_over(owner)
            del self.working[owner]

    @property
    def suspects(self) -> list[str]:
        """Owners whose attempt lost others before them."""
        return sorted(owner for owner, (attempt, *_) in self.working.items() if self.deaths[attempt] >= DEATHS)

    def taken_over(self, owner: str) -> bool:
        """Whether its claim may have become another's: it was late, or the store was lost, or it is superseded."""
        attempt, _, heard_at = self.working[owner]
        return heard_at + LEASE_S <= self.now or self.flushed or attempt < self.newest or attempt in self.done

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def renews(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.working)))
        attempt, alone, _ = self.working[owner]
        asyncio.run(self.store(owner).renew([claim_of(attempt)]))
        if not self.taken_over(owner):
            self.working[owner] = (attempt, alone, self.now)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def finishes(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.working)))
        attempt, *_ = self.working.pop(owner)
        asyncio.run(self.store(owner).finish([Done(claim_of(attempt), LONG_S)]))
        self.done.add(attempt)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def stops_in_order(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.working)))
        attempt, *_ = self.working.pop(owner)
        asyncio.run(self.store(owner).release([claim_of(attempt)]))
        self.born[owner] += 1

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def dies(self, data: st.DataObject) -> None:
        self.loses_a_worker(data.draw(st.sampled_from(sorted(self.working))))

    def loses_a_worker(self, owner: str) -> None:
        attempt, alone, _ = self.working.pop(owner)
        self.born[owner] += 1
        self.deaths[attempt] += 1
        if alone:
            self.died_alone.add(attempt)

    @precondition(lambda self: self.now < MEMORY_S - LEASE_S)
    @rule(seconds=st.sampled_from([1.0, LEASE_S / 2, LEASE_S]))
    def time_passes(self, seconds: float) -> None:
        """Whoever did not renew in time counts as dead, though it may go on."""
        self.now += seconds
        for owner, (attempt, alone, heard_at) in list(self.working.items()):
            if heard_at + LEASE_S <= self.now:
                self.deaths[attempt] += 1
                if alone:
                    self.died_alone.add(attempt)
                del self.working[owner]
                self.born[owner] += 1

    @rule()
    def loses_everything(self) -> None:
        self.shelf.flush()
        self.flushed = True

    @invariant()
    def one_works_on_an_attempt(self) -> None:
        if not self.flushed:
            current = [attempt for attempt, *_ in self.working.values() if attempt == self.newest]
            assert len(current) <= 1


async def _claim(store: InMemoryClaimStore, attempt: int) -> list[Answer]:
    return list(await store.claim([claim_of(attempt)]))


TestClaimProtocol = ClaimProtocol.TestCase
