"""What a run makes start ahead is the backend that its calls will be given to."""

import pytest

from schemas.tasks import Price
from services.autoscaler.domain.likely import Backing, likely

OWN = Backing("llm", Price(replica_hour_usd=0.72), is_staffed=False, start_s=20.0)
HOSTED = Backing("llm.burst", Price(call_usd=0.001), is_staffed=True, start_s=2.0)
BREAK_EVEN_PER_S = 0.2
"""0.72 dollars an hour are 720 calls."""


def label(*backends: Backing, calls_per_s: float = 0.0, budget_s: float = 60.0) -> str:
    return likely(backends, calls_per_s, budget_s).label


@pytest.mark.parametrize(("share", "started"), [(0.99, "llm.burst"), (1.01, "llm")])
def test_an_own_worker_is_started_beside_hosted_ones_if_it_costs_less_than_their_calls(
    share: float, started: str
) -> None:
    assert label(OWN, HOSTED, calls_per_s=share * BREAK_EVEN_PER_S) == started


def test_one_that_works_and_is_paid_anyway_takes_the_calls() -> None:
    assert label(HOSTED, OWN._replace(is_staffed=True)) == "llm"


def test_where_nobody_works_the_cheapest_is_started_that_is_ready_in_time() -> None:
    at_zero = HOSTED._replace(is_staffed=False)
    assert label(at_zero, OWN) == "llm"
    assert label(at_zero, OWN, budget_s=19.0) == "llm.burst"
    assert label(OWN, at_zero, budget_s=1.0) == "llm.burst", "the quickest, if none is"


def test_of_equals_the_first_is_taken() -> None:
    free = Backing("llm", Price(), is_staffed=False)
    assert label(free, free._replace(label="llm.twin")) == "llm"


def test_tokens_have_their_price() -> None:
    tokens = Price(input_per_mtok_usd=1.0, output_per_mtok_usd=4.0)
    assert HOSTED._replace(price=tokens).call_usd == pytest.approx(0.00128)
