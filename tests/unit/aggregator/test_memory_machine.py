"""What is remembered, against a plain list of expiries."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.aggregator.domain.memory import Memory

WINDOW_MS = 100
KEYS = st.sampled_from("abcde")
AFTER_MS = st.sampled_from([0, 1, 1, 30, 30, 99, 100, 101, 250])


class MemoryMachine(RuleBasedStateMachine):
    """Time stands, goes on, and jumps over whole windows."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: Memory[int] = Memory(WINDOW_MS)
        self.now = 1_000
        self.noted: dict[str, tuple[int, int]] = {}
        self.notes = 0
        self.older: list[tuple[Memory[int], int, list[int | None]]] = []

    @rule(key=KEYS, after_ms=AFTER_MS)
    def remember(self, key: str, after_ms: int) -> None:
        self.now += after_ms
        self.notes += 1
        self.older.append((self.memory, self.now, [self.memory.get(known, self.now) for known in "abcde"]))
        self.memory = self.memory.remember(key, self.notes, self.now)
        self.noted[key] = (self.notes, self.now + WINDOW_MS)

    @rule(key=KEYS, after_ms=AFTER_MS)
    def forget(self, key: str, after_ms: int) -> None:
        self.now += after_ms
        self.memory = self.memory.forget(key)
        self.noted.pop(key, None)

    @invariant()
    def a_key_counts_for_its_window_and_not_a_millisecond_longer(self) -> None:
        for key in "abcde":
            note, until = self.noted.get(key, (None, -1))
            assert self.memory.get(key, self.now) == (note if self.now <= until else None)

    @invariant()
    def two_windows_later_nothing_is_left(self) -> None:
        later = self.memory.remember("x", 0, self.now + WINDOW_MS + 1).remember("y", 0, self.now + 2 * WINDOW_MS + 2)
        assert len(later) == 2

    @invariant()
    def older_versions_stay_as_they_were(self) -> None:
        for memory, at, answers in self.older[-3:]:
            assert [memory.get(key, at) for key in "abcde"] == answers


TestMemory = MemoryMachine.TestCase
