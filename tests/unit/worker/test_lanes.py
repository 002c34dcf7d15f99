from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from schemas.base import LANE_WEIGHTS, Priority
from services.worker.domain.lanes import AGING_S, LANES, LaneScheduler, Turn
from services.worker.domain.slots import Slots

INTERACTIVE, STANDARD, BATCH = LANES


class Backlog:
    """Lanes full of tasks, served by a scheduler round by round."""

    def __init__(self, **tasks: int) -> None:
        self.left = Counter({Priority(lane): count for lane, count in tasks.items()})
        self.scheduler = LaneScheduler(0.0)
        self.served: list[Priority] = []

    def round(self, free: int, now_s: float = 0.0) -> list[Priority]:
        taken: list[Priority] = []
        self.scheduler.begin()
        while turn := self.scheduler.turn(dict.fromkeys(LANES, free - len(taken)), now_s):
            got = min(turn.limit, self.left[turn.lane])
            self.left[turn.lane] -= got
            taken += [turn.lane] * got
            self.scheduler.took(turn, got, now_s)
        self.served += taken
        return taken

    def rounds(self, count: int, free: int = 1) -> Counter[Priority]:
        return Counter(lane for _ in range(count) for lane in self.round(free))


def test_full_lanes_share_by_weight() -> None:
    shares = Backlog(interactive=10_000, standard=10_000, batch=10_000).rounds(1_700)
    assert shares == {INTERACTIVE: 1_200, STANDARD: 400, BATCH: 100}


def test_the_lowest_lane_keeps_a_twentieth() -> None:
    shares = Backlog(interactive=10_000, standard=10_000, batch=10_000).rounds(2_000)
    assert shares[BATCH] >= 0.05 * 2_000


def test_shares_hold_at_every_moment_not_only_over_a_round() -> None:
    backlog = Backlog(interactive=1_000, standard=1_000, batch=1_000)
    backlog.rounds(340)
    windows = [Counter(backlog.served[start : start + 17]) for start in range(300)]
    assert all(window[INTERACTIVE] >= 10 and window[STANDARD] >= 3 for window in windows)


def test_a_lane_alone_has_every_slot() -> None:
    assert Backlog(batch=100).rounds(10, free=8) == {BATCH: 80}


def test_the_higher_lane_is_asked_first() -> None:
    backlog = Backlog(interactive=1, standard=1, batch=5)
    assert backlog.round(3) == [INTERACTIVE, STANDARD, BATCH]


def test_an_idle_lane_saves_nothing_up() -> None:
    backlog = Backlog(batch=1_000)
    backlog.rounds(500)
    backlog.left[INTERACTIVE] = 1_000
    assert backlog.rounds(130) == {INTERACTIVE: 120, BATCH: 10}


def test_a_lane_that_comes_back_goes_first() -> None:
    backlog = Backlog(batch=1_000)
    backlog.rounds(100)
    backlog.left[INTERACTIVE] = 1
    assert backlog.round(1) == [INTERACTIVE]


def test_a_lane_waits_no_longer_than_its_age_allows() -> None:
    backlog = Backlog(interactive=100, standard=100, batch=100)
    backlog.round(3, now_s=0.0)
    served = [backlog.round(1, now_s=AGING_S + i)[0] for i in range(6)]
    assert BATCH in served


def test_aging_never_takes_two_turns_in_a_row() -> None:
    backlog = Backlog(interactive=1_000, standard=1_000, batch=1_000)
    slow = [backlog.round(1, now_s=i * 2 * AGING_S)[0] for i in range(1, 101)]
    assert slow.count(INTERACTIVE) >= 50
    assert min(slow.count(STANDARD), slow.count(BATCH)) >= 20


def test_a_round_ends_when_every_lane_is_dry() -> None:
    assert Backlog().round(4) == []


def test_a_lane_without_free_slots_has_no_turn() -> None:
    scheduler = LaneScheduler(0.0)
    free = {INTERACTIVE: 0, STANDARD: 2, BATCH: 0}
    assert scheduler.turn(free, 0.0) == Turn(STANDARD, 2)


@given(
    st.lists(st.tuples(st.integers(1, 64), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)), max_size=50)
)
def test_no_slot_stays_free_while_a_lane_has_work(rounds: list[tuple[int, int, int, int]]) -> None:
    backlog = Backlog()
    for free, *arrivals in rounds:
        backlog.left.update(dict(zip(LANES, arrivals, strict=True)))
        waiting = backlog.left.total()
        assert len(backlog.round(free)) == min(free, waiting)


@given(st.lists(st.integers(0, 30), min_size=3, max_size=3), st.integers(1, 8))
def test_whatever_came_before_the_lowest_lane_is_served_within_a_round_of_weights(
    before: list[int], free: int
) -> None:
    backlog = Backlog(**dict(zip(("interactive", "standard", "batch"), before, strict=True)))
    backlog.rounds(40, free)
    for lane in LANES:
        backlog.left[lane] = 1_000
    served = [lane for _ in range(sum(LANE_WEIGHTS.values()) + 1) for lane in backlog.round(1)]
    assert BATCH in served


class LanesOnSlots(RuleBasedStateMachine):
    """Any arrivals, any order of ends: slots are never overdrawn, work is never left beside a slot it may use."""

    @initialize(total=st.integers(1, 16), lent=st.booleans())
    def start(self, total: int, lent: bool) -> None:
        self.slots = Slots(total)
        self.slots.lent = lent
        self.scheduler = LaneScheduler(0.0)
        self.now = 0.0
        self.waiting = Counter(dict.fromkeys(LANES, 0))
        self.running: list[Priority] = []

    @rule(lane=st.sampled_from(LANES), count=st.integers(1, 20))
    def arrive(self, lane: Priority, count: int) -> None:
        self.waiting[lane] += count

    @rule(index=st.integers(0, 15))
    def end(self, index: int) -> None:
        if self.running:
            self.slots.release(self.running.pop(index % len(self.running)))

    @rule(lent=st.booleans(), seconds=st.floats(0, 60))
    def change(self, lent: bool, seconds: float) -> None:
        self.slots.lent = lent
        self.now += seconds

    @rule(total=st.integers(1, 16))
    def resize(self, total: int) -> None:
        self.slots.total = total

    @rule()
    def round(self) -> None:
        self.scheduler.begin()
        ran = len(self.running)
        while turn := self.scheduler.turn({lane: self.slots.free(lane) for lane in LANES}, self.now):
            got = min(turn.limit, self.waiting[turn.lane])
            for _ in range(got):
                self.slots.take(turn.lane)
                self.running.append(turn.lane)
            self.waiting[turn.lane] -= got
            self.scheduler.took(turn, got, self.now)
        assert not any(self.waiting[lane] and self.slots.free(lane) for lane in LANES)
        assert self.slots.busy <= max(ran, self.slots.total)

    @invariant()
    def slots_are_counted(self) -> None:
        if hasattr(self, "slots"):
            assert self.slots.busy == len(self.running)


LanesOnSlots.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestLanesOnSlots = LanesOnSlots.TestCase
