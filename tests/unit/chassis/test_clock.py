"""The log's time, from the broker's stamps and a monotonic clock alone."""

from hypothesis import given
from hypothesis import strategies as st

from services.chassis.clock import WINDOW_S, LogClock

NOON_MS = 1_700_000_000_000


class Monotonic:
    def __init__(self) -> None:
        self.now_s = 5_000.0

    def __call__(self) -> float:
        return self.now_s


def test_time_is_unknown_before_the_broker_has_spoken() -> None:
    assert LogClock(Monotonic()).now_ms() is None


def test_time_goes_on_from_the_newest_stamp() -> None:
    clock = LogClock(monotonic := Monotonic())
    clock.observe(NOON_MS)
    monotonic.now_s += 2.5
    assert clock.now_ms() == NOON_MS + 2_500


def test_a_stale_record_does_not_move_it_back() -> None:
    clock = LogClock(monotonic := Monotonic())
    clock.observe(NOON_MS)
    monotonic.now_s += 1
    clock.observe(NOON_MS - 3_600_000)
    assert clock.now_ms() == NOON_MS + 1_000


def test_a_fresher_stamp_moves_it_forward() -> None:
    clock = LogClock(Monotonic())
    clock.observe(NOON_MS - 800)
    clock.observe(NOON_MS)
    assert clock.now_ms() == NOON_MS


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(0, 5_000)), min_size=1, max_size=50))
def test_it_is_never_ahead_of_the_broker_and_behind_by_the_shortest_delay(seen: list[tuple[float, int]]) -> None:
    """Records arrive at any time, each some milliseconds after it was stamped."""
    clock = LogClock(monotonic := Monotonic())
    began_s = monotonic.now_s
    for wait_s, delay_ms in seen[:14]:  # 14 × 20 s: within one window
        monotonic.now_s += wait_s
        broker_now_ms = NOON_MS + (monotonic.now_s - began_s) * 1_000
        clock.observe(int(broker_now_ms) - delay_ms)
    now_ms = clock.now_ms()
    assert now_ms is not None
    behind_ms = NOON_MS + (monotonic.now_s - began_s) * 1_000 - now_ms
    assert -0.001 <= behind_ms <= min(delay for _, delay in seen[:14]) + 2


def test_after_the_brokers_clock_stepped_back_it_follows_within_two_windows() -> None:
    clock = LogClock(monotonic := Monotonic())
    clock.observe(NOON_MS + 60_000)
    began_s = monotonic.now_s
    while monotonic.now_s - began_s <= 2 * WINDOW_S:
        monotonic.now_s += 3
        clock.observe(NOON_MS + int((monotonic.now_s - began_s) * 1_000))
    assert clock.now_ms() == NOON_MS + int((monotonic.now_s - began_s) * 1_000)


def test_a_silent_hour_is_bridged_by_the_monotonic_clock() -> None:
    clock = LogClock(monotonic := Monotonic())
    clock.observe(NOON_MS)
    monotonic.now_s += 3_600
    clock.observe(NOON_MS - 5_000)  # the first record after it is an old one
    assert clock.now_ms() == NOON_MS + 3_600_000
