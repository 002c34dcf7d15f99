"""A task goes where it is done in time for the least money; where that is nowhere, to the quickest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.autoscaler.domain.backends import Choice, Offer, choose, predicted_wait_s

OWN, HOSTED = Offer("local", 0.0, 2.0, usd=0.0), Offer("burst", 0.0, 3.0, usd=0.001)


def test_what_is_paid_anyway_is_taken_while_it_is_in_time() -> None:
    assert choose([OWN, HOSTED], 10.0) == Choice("local", "cheapest in time")


@pytest.mark.parametrize(("wait_s", "backend"), [(6.0, "local"), (6.1, "burst")], ids=["just in time", "too late"])
def test_a_queue_that_would_use_up_the_budget_spills(wait_s: float, backend: str) -> None:
    assert choose([OWN._replace(wait_s=wait_s), HOSTED], 10.0).backend == backend


def test_the_reserve_is_the_backends_own() -> None:
    patient = OWN._replace(wait_s=7.0, spill_at=0.9)
    assert choose([patient, HOSTED], 10.0).backend == "local"


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
    ("outstanding", "replicas", "ready_in_s", "wait_s"),
    [(0, 1, 0.0, 0.0), (3, 1, 0.0, 0.0), (4, 1, 0.0, 0.5), (19, 2, 0.0, 3.0), (0, 1, 9.0, 9.0), (5, 0, None, None)],
    ids=["a free slot", "the last one", "the first in the queue", "a queue", "all start", "nobody"],
)
def test_the_wait_is_what_is_ahead_over_what_works_at_it(
    outstanding: int, replicas: int, ready_in_s: float | None, wait_s: float | None
) -> None:
    assert predicted_wait_s(outstanding, 2.0, 4, replicas, ready_in_s) == wait_s


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
def test_no_other_that_is_in_time_is_cheaper(found: list[Offer], budget_s: float) -> None:
    chosen = next(offer for offer in found if offer.backend == choose(found, budget_s).backend)
    in_time = [offer for offer in found if offer.done_s is not None and offer.done_s <= budget_s * offer.spill_at]
    if in_time:
        assert chosen in in_time
        assert chosen.usd == min(offer.usd for offer in in_time)
