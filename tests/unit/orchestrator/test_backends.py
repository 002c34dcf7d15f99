"""A task goes where it is done in time for the least money; where that is nowhere, to the quickest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.orchestrator.domain.backends import Choice, Offer, choose, predicted_wait_s, ranked

OWN, HOSTED = Offer("local", 0.0, 2.0, usd=0.0), Offer("burst", 0.0, 3.0, usd=0.001)


def test_what_is_paid_anyway_is_taken_while_it_is_in_time() -> None:
    assert choose([OWN, HOSTED], 10.0) == Choice("local", "cheapest in time")


@pytest.mark.parametrize(("wait_s", "backend"), [(6.0, "local"), (6.1, "burst")], ids=["just in time", "too late"])
def test_a_queue_that_would_use_up_the_budget_spills(wait_s: float, backend: str) -> None:
    assert choose([OWN._replace(wait_s=wait_s), HOSTED], 10.0).backend == backend


@pytest.mark.parametrize(("spill_at", "backend"), [(0.9, "local"), (0.5, "burst")])
def test_the_dearer_one_says_how_late_the_cheaper_one_may_be(spill_at: float, backend: str) -> None:
    assert choose([OWN._replace(wait_s=5.0), HOSTED._replace(spill_at=spill_at)], 10.0).backend == backend


def test_the_dearest_has_no_use_for_one_that_would_be_late_there_too() -> None:
    assert choose([OWN._replace(wait_s=6.5), HOSTED._replace(wait_s=6.0)], 10.0) == Choice("local", "quickest")


def test_what_cannot_be_given_to_the_best_goes_to_the_next() -> None:
    late, unheard = Offer("slow", 50.0, 2.0, usd=0.0), Offer("gone", None, 2.0, usd=0.0)
    assert [one.backend for one in ranked([unheard, late, HOSTED, OWN], 10.0)] == ["local", "burst", "slow", "gone"]


def test_of_several_in_time_the_cheapest_is_taken() -> None:
    dear = Offer("premium", 0.0, 0.5, usd=0.01)
    assert choose([dear, HOSTED], 10.0).backend == "burst"
    assert choose([dear, HOSTED], 3.0).backend == "premium"


def test_when_nothing_is_in_time_the_quickest_may_still_be() -> None:
    assert choose([OWN._replace(wait_s=9.0), HOSTED], 2.0) == Choice("burst", "quickest")


def test_a_backend_that_nobody_hears_of_is_used_only_when_all_are() -> None:
    unheard = OWN._replace(wait_s=None)
    assert choose([unheard, HOSTED], 10.0).backend == "burst"
    assert choose([unheard, HOSTED], 0.1) == Choice("burst", "quickest")
    assert choose([unheard, HOSTED._replace(wait_s=None)], 10.0) == Choice("local", "unknown")


def test_of_equals_the_first_is_taken() -> None:
    assert choose([OWN, OWN._replace(backend="twin")], 10.0).backend == "local"


@pytest.mark.parametrize(
    ("outstanding", "slots", "ready_in_s", "wait_s"),
    [(0, 4, 0.0, 0.0), (3, 4, 0.0, 0.0), (4, 4, 0.0, 0.5), (19, 8, 0.0, 3.0), (0, 4, 9.0, 9.0), (5, 0, None, None)],
    ids=["a free slot", "the last one", "the first in the queue", "a queue", "all start", "nobody"],
)
def test_the_wait_is_what_is_ahead_over_what_works_at_it(
    outstanding: int, slots: int, ready_in_s: float | None, wait_s: float | None
) -> None:
    assert predicted_wait_s(outstanding, 2.0, slots, ready_in_s) == wait_s


offers = st.lists(
    st.builds(
        Offer,
        st.sampled_from("abcdef"),
        st.none() | st.floats(0, 60),
        st.floats(0.01, 30),
        st.floats(0, 1),
        st.floats(0.1, 1),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda offer: offer.backend,
)


@given(offers, st.floats(0, 60))
def test_no_other_that_is_in_time_and_has_workers_is_cheaper(found: list[Offer], budget_s: float) -> None:
    found = [offer._replace(spill_at=0.8) for offer in found]
    chosen = next(offer for offer in found if offer.backend == choose(found, budget_s).backend)
    in_time = [offer for offer in found if offer.done_s <= budget_s * 0.8]
    in_time = [offer for offer in in_time if offer.is_staffed] or in_time
    if in_time:
        assert chosen in in_time
        assert chosen.usd == min(offer.usd for offer in in_time)


@given(offers, st.floats(0, 60))
def test_every_backend_has_its_place(found: list[Offer], budget_s: float) -> None:
    assert sorted(one.backend for one in ranked(found, budget_s)) == sorted(offer.backend for offer in found)
