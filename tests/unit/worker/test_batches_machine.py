"""Micro-batches: no task waits in vain, none goes alone without a reason."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from services.worker.domain.batches import MicroBatcher


class BatcherMachine(RuleBasedStateMachine):
    """Tasks arrive, the engine is idle or busy, time passes in millionths of seconds."""

    @initialize(max_size=st.integers(1, 5), wait_us=st.integers(0, 3_000))
    def start(self, max_size: int, wait_us: int) -> None:
        self.max_size, self.wait_us = max_size, wait_us
        self.batcher = MicroBatcher[int](max_size, wait_us / 1e6)
        self.waiting: list[int] = []
        self.added = 0
        self.now_us = 0
        self.first_us = 0

    @rule()
    def add(self) -> None:
        if not self.waiting:
            self.first_us = self.now_us
        self.batcher.add(self.added, self.now_us / 1e6)
        self.waiting.append(self.added)
        self.added += 1

    @rule(us=st.integers(1, 2_000))
    def wait(self, us: int) -> None:
        self.now_us += us

    @rule(idle=st.booleans())
    def take(self, idle: bool) -> None:
        batch = self.batcher.next(self.now_us / 1e6, idle=idle)
        is_late = self.now_us - self.first_us > self.wait_us + 1
        is_early = self.now_us - self.first_us < self.wait_us - 1
        if idle or len(self.waiting) >= self.max_size or is_late:
            assert batch == self.waiting[: self.max_size]
        elif is_early:
            assert batch == []
        self.waiting = self.waiting[len(batch) :]

    @rule()
    def clear(self) -> None:
        assert self.batcher.clear() == self.waiting
        self.waiting = []

    @invariant()
    def it_says_when_the_first_must_go(self) -> None:
        due_s = self.batcher.due_in(self.now_us / 1e6)
        if not self.waiting:
            assert due_s is None
        else:
            assert due_s is not None
            assert abs(due_s - max(0, self.first_us + self.wait_us - self.now_us) / 1e6) < 1e-6


TestBatcher = BatcherMachine.TestCase
