import pytest

from schemas.base import Priority
from services.worker.domain.lanes import LANES
from services.worker.domain.slots import Slots

INTERACTIVE, STANDARD, BATCH = LANES


def test_a_quarter_is_kept_for_the_top_lane() -> None:
    slots = Slots(8)
    assert (slots.free(INTERACTIVE), slots.free(STANDARD), slots.free(BATCH)) == (8, 6, 6)


@pytest.mark.parametrize(("total", "reserved"), [(1, 0), (3, 0), (4, 1), (7, 1), (64, 16)])
def test_small_engines_reserve_nothing(total: int, reserved: int) -> None:
    assert Slots(total).reserved == reserved


def test_the_top_lane_may_take_every_slot() -> None:
    slots = Slots(4)
    for _ in range(4):
        slots.take(INTERACTIVE)
    assert [slots.free(lane) for lane in LANES] == [0, 0, 0]


def test_lower_lanes_leave_the_reserve() -> None:
    slots = Slots(4)
    for lane in (BATCH, STANDARD, BATCH):
        slots.take(lane)
    assert [slots.free(lane) for lane in LANES] == [1, 0, 0]


def test_the_top_lane_in_its_reserve_takes_nothing_from_the_others() -> None:
    slots = Slots(4)
    slots.take(INTERACTIVE)
    assert slots.free(BATCH) == 3


def test_without_a_partition_of_the_top_lane_its_reserve_is_lent() -> None:
    slots = Slots(4)
    slots.lent = True
    assert slots.free(BATCH) == 4


def test_a_reserve_called_back_is_not_negative() -> None:
    slots = Slots(4)
    slots.lent = True
    for _ in range(4):
        slots.take(BATCH)
    slots.lent = False
    assert [slots.free(lane) for lane in LANES] == [0, 0, 0]
    slots.release(BATCH)
    assert [slots.free(lane) for lane in LANES] == [1, 0, 0]


def test_fewer_slots_stop_nothing_and_are_free_when_enough_has_ended() -> None:
    slots = Slots(8)
    for lane in (INTERACTIVE, INTERACTIVE, STANDARD, STANDARD, STANDARD, STANDARD):
        slots.take(lane)
    slots.total = 4
    assert (slots.busy, slots.reserved) == (6, 1)
    assert [slots.free(lane) for lane in LANES] == [0, 0, 0]
    slots.release(INTERACTIVE)
    slots.release(INTERACTIVE)
    assert [slots.free(lane) for lane in LANES] == [0, 0, 0]
    slots.release(STANDARD)
    assert [slots.free(lane) for lane in LANES] == [1, 0, 0], "the reserve is of the slots that there are now"
    slots.release(STANDARD)
    assert [slots.free(lane) for lane in LANES] == [2, 1, 1]
    slots.total = 8
    assert [slots.free(lane) for lane in LANES] == [6, 4, 4]


@pytest.mark.parametrize(
    ("total", "taken", "wanting"),
    [
        (4, (), False),
        (4, (STANDARD, BATCH), False),
        (4, (STANDARD, BATCH, BATCH), True),
        (4, (INTERACTIVE, INTERACTIVE, INTERACTIVE), False),
        (4, (INTERACTIVE, INTERACTIVE, INTERACTIVE, INTERACTIVE), True),
        (1, (BATCH,), True),
    ],
)
def test_a_lane_that_has_all_it_may_wants_more(total: int, taken: tuple[Priority, ...], *, wanting: bool) -> None:
    slots = Slots(total)
    for lane in taken:
        slots.take(lane)
    assert slots.wanting == wanting


def test_a_slot_is_given_back_once() -> None:
    slots = Slots(1)
    slots.take(STANDARD)
    slots.release(STANDARD)
    with pytest.raises(AssertionError):
        slots.release(STANDARD)


def test_a_full_engine_takes_nothing() -> None:
    slots = Slots(1)
    slots.take(STANDARD)
    with pytest.raises(AssertionError):
        slots.take(INTERACTIVE)
