"""Of two leaders the later one is obeyed, however late the earlier one speaks; what is stale changes nothing."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.fleet import Kept
from services.host.domain.orders import SILENT_AFTER_MS, STALE_AFTER_MS, Order, obeyed

NOW_MS = 1_000_000


def order(epoch: int, stamped_ms: int = NOW_MS, warm: int = 1) -> Order:
    return Order(epoch, stamped_ms, {"llm": Kept(warm=warm)})


def test_the_first_order_is_obeyed() -> None:
    assert obeyed(None, order(7), NOW_MS) == order(7)


def test_a_leader_may_change_its_mind() -> None:
    assert obeyed(order(7, NOW_MS - 2_000), order(7, warm=3), NOW_MS) == order(7, warm=3)


def test_a_leader_that_leads_no_more_is_ignored() -> None:
    assert obeyed(order(8, NOW_MS - 9_000), order(7), NOW_MS) == order(8, NOW_MS - 9_000)


def test_an_older_record_read_again_changes_nothing() -> None:
    assert obeyed(order(7), order(7, NOW_MS - 2_000, warm=9), NOW_MS) == order(7)


@pytest.mark.parametrize(("age_ms", "is_obeyed"), [(STALE_AFTER_MS, True), (STALE_AFTER_MS + 1, False)])
def test_a_stale_order_is_ignored_whoever_gave_it(age_ms: int, is_obeyed: bool) -> None:
    arrived = order(9, NOW_MS - age_ms)
    assert (obeyed(order(7, NOW_MS - 40_000), arrived, NOW_MS) == arrived) == is_obeyed


def test_of_two_orders_within_a_millisecond_the_later_one_counts() -> None:
    assert obeyed(order(7), order(7, warm=3), NOW_MS) == order(7, warm=3)


def test_an_order_once_obeyed_stays_in_force_when_nobody_speaks_any_more() -> None:
    assert obeyed(order(7, NOW_MS - 600_000), order(6, NOW_MS - 599_000), NOW_MS) == order(7, NOW_MS - 600_000)


def test_after_a_long_silence_an_epoch_counts_no_more_since_its_topic_may_have_been_made_anew() -> None:
    silent = order(7, NOW_MS - SILENT_AFTER_MS)
    assert obeyed(silent, order(0), NOW_MS) == silent
    assert obeyed(silent, order(0, NOW_MS + 1), NOW_MS + 1) == order(0, NOW_MS + 1)


orders = st.lists(
    st.builds(order, st.integers(0, 3), st.integers(NOW_MS - 60_000, NOW_MS), st.integers(0, 5)), max_size=4
)


@given(orders)
def test_the_order_in_force_does_not_depend_on_the_order_of_reading(found: list[Order]) -> None:
    ends = set()
    for some in permutations(found):
        current = None
        for arrived in some:
            current = obeyed(current, arrived, NOW_MS)
        ends.add(current and current[:2])
    assert len(ends) == 1
