"""The log's time against a broker's true clock: drifting, stepped, heard late."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.chassis.clock import WINDOW_S, LogClock

NOON_MS = 1_700_000_000_000
DRIFT = 0.001
"""How much faster or slower than the broker's our monotonic clock may be: ten times what quartz does."""


class ClockMachine(RuleBasedStateMachine):
    """Records come late, re-read, or fresh; broker and process count seconds at slightly different speeds."""

    def __init__(self) -> None:
        super().__init__()
        self.our_s = 5_000.0
        self.broker_ms = float(NOON_MS)
        self.clock = LogClock(lambda: self.our_s)
        self.heard: list[tuple[float, float]] = []
        """(our time, how late) of every stamp heard."""
        self.last_ms: int | None = None

    @rule(seconds=st.floats(0, 200), drift=st.floats(-DRIFT, DRIFT))
    def pass_time(self, seconds: float, drift: float) -> None:
        self.our_s += seconds
        self.broker_ms += seconds * 1_000 * (1 + drift)

    @rule(late_ms=st.one_of(st.just(0), st.integers(0, 300), st.integers(0, 7_200_000)))
    def hear(self, late_ms: int) -> None:
        """A stamp of the broker, `late_ms` after it was given."""
        before_ms = self.clock.now_ms()
        self.clock.observe(int(self.broker_ms) - late_ms)
        self.heard.append((self.our_s, late_ms))
        after_ms = self.clock.now_ms()
        assert after_ms is not None
        assert after_ms >= int(self.broker_ms) - late_ms - 1, "a fresher stamp moves it forward"
        if before_ms is not None and self._is_within_half_a_window():
            assert after_ms >= before_ms, "a stale stamp changes nothing"

    def _is_within_half_a_window(self) -> bool:
        return self.our_s - self.heard[0][0] < WINDOW_S / 2

    @invariant()
    def it_is_unknown_until_something_was_heard(self) -> None:
        assert (self.clock.now_ms() is None) == (not self.heard)

    @invariant()
    def it_runs_ahead_by_no_more_than_the_drift_since_the_oldest_stamp(self) -> None:
        if self.heard:
            drifted_ms = (self.our_s - self.heard[0][0]) * 1_000 * DRIFT
            assert self._ahead_ms() <= drifted_ms + 1

    @invariant()
    def it_is_behind_by_no_more_than_the_freshest_stamp_of_half_a_window_was(self) -> None:
        recent = [(at_s, late_ms) for at_s, late_ms in self.heard if self.our_s - at_s <= WINDOW_S / 2]
        if recent:
            allowed_ms = min(late_ms + (self.our_s - at_s) * 1_000 * DRIFT for at_s, late_ms in recent)
            assert -self._ahead_ms() <= allowed_ms + 2

    def _ahead_ms(self) -> float:
        now_ms = self.clock.now_ms()
        assert now_ms is not None
        return now_ms - self.broker_ms


TestClock = ClockMachine.TestCase
