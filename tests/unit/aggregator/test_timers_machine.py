"""The index of timers, against a plain table of what is due when."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.aggregator.domain.timers import REPEAT_MS, SLACK, Timers

RUNS = st.sampled_from([f"run-{number}" for number in range(8)])


class TimersMachine(RuleBasedStateMachine):
    """Timers move, end and are popped; the clock may go back."""

    def __init__(self) -> None:
        super().__init__()
        self.timers = Timers()
        self.due: dict[str, int] = {}
        self.now = 10_000

    @rule(run_id=RUNS, in_ms=st.integers(-500, 5_000))
    def schedule(self, run_id: str, in_ms: int) -> None:
        self.due[run_id] = self.now + in_ms
        self.timers.schedule(run_id, self.due[run_id])

    @rule(run_id=RUNS)
    def end(self, run_id: str) -> None:
        self.due.pop(run_id, None)
        self.timers.schedule(run_id, None)

    @rule(wait_ms=st.integers(-300, 3_000), limit=st.integers(1, 10))
    def pop(self, wait_ms: int, limit: int) -> None:
        self.now += wait_ms
        ripe = sorted((due, run_id) for run_id, due in self.due.items() if due <= self.now)
        popped = self.timers.pop_due(self.now, limit)
        assert popped == [run_id for _, run_id in ripe[:limit]]
        self.due |= dict.fromkeys(popped, self.now + REPEAT_MS)

    @rule(count=st.integers(1, 400))
    def a_burst_that_ends_early(self, count: int) -> None:
        for number in range(count):
            self.timers.schedule(f"burst-{number}", self.now + 3_600_000 + number)
        for number in range(count):
            self.timers.schedule(f"burst-{number}", None)

    @invariant()
    def ended_runs_do_not_pile_up(self) -> None:
        assert self.timers.size <= 2 * (len(self.due) + 400) + SLACK + 400


TestTimers = TimersMachine.TestCase


def test_a_run_that_goes_back_to_a_time_it_had_is_popped_once() -> None:
    timers = Timers()
    for _ in range(2):
        timers.schedule("run", 0)
        assert timers.pop_due(0, limit=2) == ["run"]
    assert timers.pop_due(REPEAT_MS, limit=2) == ["run"]
