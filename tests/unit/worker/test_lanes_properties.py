"""Fairness between lanes, whatever came before and however many slots are free at a time."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Priority
from services.worker.domain.lanes import AGING_S, LANES, LaneScheduler

SHARES = {Priority.INTERACTIVE: 12, Priority.STANDARD: 4, Priority.BATCH: 1}
ENDLESS = 10**6


def serve(scheduler: LaneScheduler, waiting: Counter[Priority], free: int, now_s: float) -> list[Priority]:
    """One round; what was taken is no longer waiting."""
    taken: list[Priority] = []
    scheduler.begin()
    while turn := scheduler.turn(dict.fromkeys(LANES, free - len(taken)), now_s):
        assert 1 <= turn.limit <= free - len(taken)
        got = min(turn.limit, waiting[turn.lane])
        waiting[turn.lane] -= got
        taken += [turn.lane] * got
        scheduler.took(turn, got, now_s)
    return taken


rounds = st.lists(st.tuples(st.integers(1, 12), st.lists(st.integers(0, 30), min_size=3, max_size=3)), max_size=30)
backlogged = st.sets(st.sampled_from(LANES), min_size=1)


@given(rounds, backlogged, st.integers(1, 12))
def test_backlogged_lanes_share_by_weight_whatever_came_before(
    before: list[tuple[int, list[int]]], lanes: set[Priority], free: int
) -> None:
    """Within one turn of each lane: no lane is owed more than a round of weights and a batch of slots."""
    scheduler, waiting = LaneScheduler(0.0), Counter[Priority]()
    for slots, arrivals in before:
        waiting.update(dict(zip(LANES, arrivals, strict=True)))
        serve(scheduler, waiting, slots, 0.0)
    waiting = Counter(dict.fromkeys(lanes, ENDLESS))
    for _ in range(40):  # what was owed from before is paid within these
        serve(scheduler, waiting, free, 0.0)
    served = Counter(lane for _ in range(100) for lane in serve(scheduler, waiting, free, 0.0))
    assert served.total() == 100 * free
    total = sum(SHARES[lane] for lane in lanes)
    for lane in lanes:
        assert abs(served[lane] - served.total() * SHARES[lane] / total) <= sum(SHARES.values())


@given(st.lists(st.tuples(st.integers(1, 4), st.floats(0, 90)), min_size=1, max_size=60), backlogged)
def test_no_lane_waits_longer_than_its_age_and_the_turns_of_the_others(
    steps: list[tuple[int, float]], lanes: set[Priority]
) -> None:
    """A backlogged lane that is overdue goes first, or right after another one that was overdue as well."""
    scheduler, now_s = LaneScheduler(0.0), 0.0
    waiting = Counter(dict.fromkeys(lanes, ENDLESS))
    served_at = dict.fromkeys(lanes, 0.0)
    passed_over = dict.fromkeys(lanes, 0)
    for free, seconds in steps:
        now_s += seconds
        overdue = {lane for lane in lanes if now_s - served_at[lane] >= AGING_S}
        taken = serve(scheduler, waiting, free, now_s)
        for lane in lanes:
            passed_over[lane] = passed_over[lane] + 1 if lane in overdue and lane not in taken else 0
            assert passed_over[lane] <= 2 * len(lanes)
        served_at |= dict.fromkeys(taken, now_s)


@given(rounds, st.lists(st.sampled_from(LANES), min_size=1, max_size=3, unique=True))
def test_an_idle_time_neither_owes_nor_is_owed(before: list[tuple[int, list[int]]], idle: list[Priority]) -> None:
    """However long a lane stood empty, its first thirty turns beside another are not all its own."""
    scheduler, waiting = LaneScheduler(0.0), Counter[Priority]()
    busy = next((lane for lane in LANES if lane not in idle), LANES[-1])
    for slots, _ in before:
        waiting[busy] = ENDLESS
        serve(scheduler, waiting, slots, 0.0)
    waiting = Counter({idle[0]: ENDLESS, busy: ENDLESS})
    served = Counter(lane for _ in range(2 * sum(SHARES.values())) for lane in serve(scheduler, waiting, 1, 0.0))
    assert min(served[idle[0]], served[busy]) >= 1
