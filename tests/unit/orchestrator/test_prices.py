"""What a task would cost on a backend."""

import pytest

from schemas.base import BlobRef, Output
from schemas.tasks import Price
from services.orchestrator.domain.prices import USUAL_OUTPUT_TOKENS, expected_usd

TOKENS = Price(input_per_mtok_usd=1.0, output_per_mtok_usd=2.0, call_usd=0.5)


def test_a_replica_is_paid_anyway() -> None:
    assert expected_usd(Price(replica_hour_usd=9.0), Output(value={"max_tokens": 1_000})) == 0.0


def test_a_call_costs_what_it_costs() -> None:
    assert expected_usd(Price(call_usd=0.5, replica_hour_usd=1.0), Output(value="x")) == 0.5


@pytest.mark.parametrize(
    ("value", "tokens_in", "tokens_out"),
    [
        (Output(value={"prompt": "x" * 371, "max_tokens": 50}), 100, 50),
        (Output(value={"prompt": "x" * 387}), 100, USUAL_OUTPUT_TOKENS),
        (Output(value="x" * 398), 100, USUAL_OUTPUT_TOKENS),
        (Output(value={"prompt": "x" * 370, "max_tokens": "5"}), 100, USUAL_OUTPUT_TOKENS),
        (Output(ref=BlobRef(sha256="0" * 64, size_bytes=40_000)), 10_000, USUAL_OUTPUT_TOKENS),
    ],
    ids=["told", "not told", "no object", "told wrongly", "a claim check"],
)
def test_tokens_are_guessed_from_the_input(value: Output, tokens_in: int, tokens_out: int) -> None:
    usd = expected_usd(TOKENS, value)
    assert usd == pytest.approx(0.5 + (tokens_in * 1.0 + tokens_out * 2.0) / 1e6)
