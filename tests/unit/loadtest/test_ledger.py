"""The account of a load: what is lost, late, repeated or conflicting."""

import pytest

from loadtest.ledger import Ledger
from schemas.topics import REQUESTS, RESPONSES

DEADLINE_S = 10.0
SUCCEEDED, FAILED = b'{"status":"succeeded","output":1}', b'{"status":"failed","output":null}'


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(DEADLINE_S)


def ask(ledger: Ledger, number: int, at_ms: int) -> None:
    request_id = ledger.request_id(number)
    ledger.acknowledged.add(request_id)
    ledger.enter(REQUESTS, request_id.encode(), b"{}", at_ms)


def answer(ledger: Ledger, number: int, at_ms: int, value: bytes = SUCCEEDED) -> None:
    ledger.enter(RESPONSES, ledger.request_id(number).encode(), value, at_ms)


def test_an_answered_load_is_settled_and_breaks_nothing(ledger: Ledger) -> None:
    for number in range(100):
        ask(ledger, number, at_ms=1_000)
        answer(ledger, number, at_ms=1_001 + number)
    assert ledger.is_settled
    verdict = ledger.verdict()
    assert verdict.pop("latency_ms") == {"p50": 50, "p95": 95, "p99": 99, "max": 100}
    assert verdict.pop("requests") == verdict.pop("succeeded") == 100
    assert set(verdict.values()) == {0}


def test_a_request_without_an_answer_is_lost(ledger: Ledger) -> None:
    ask(ledger, 0, at_ms=0)
    assert not ledger.is_settled
    assert ledger.verdict()["lost"] == 1


def test_a_request_that_was_acknowledged_and_stands_nowhere_is_lost(ledger: Ledger) -> None:
    ledger.acknowledged.add(ledger.request_id(0))
    assert not ledger.is_settled
    assert (ledger.verdict()["requests"], ledger.verdict()["lost"]) == (1, 1)


@pytest.mark.parametrize(("at_ms", "late"), [(26_000, 0), (26_001, 1)])
def test_late_is_more_than_fifteen_seconds_after_the_deadline(ledger: Ledger, at_ms: int, late: int) -> None:
    ask(ledger, 0, at_ms=1_000)
    answer(ledger, 0, at_ms)
    assert ledger.verdict()["late"] == late


@pytest.mark.parametrize(("second", "conflicting"), [(SUCCEEDED, 0), (FAILED, 1)])
def test_a_second_answer_repeats_the_first_or_conflicts_with_it(
    ledger: Ledger, second: bytes, conflicting: int
) -> None:
    ask(ledger, 0, at_ms=0)
    answer(ledger, 0, at_ms=1)
    answer(ledger, 0, at_ms=2, value=second)
    verdict = ledger.verdict()
    assert (verdict["repeated"], verdict["conflicting"]) == (1, conflicting)


def test_an_answer_may_be_read_before_its_request(ledger: Ledger) -> None:
    answer(ledger, 0, at_ms=7)
    ask(ledger, 0, at_ms=5)
    assert (ledger.verdict()["succeeded"], ledger.verdict()["latency_ms"]["max"]) == (1, 2)


def test_what_did_not_succeed_failed_and_is_no_goodput(ledger: Ledger) -> None:
    for number, value in enumerate((SUCCEEDED, FAILED, SUCCEEDED)):
        ask(ledger, number, at_ms=0)
        answer(ledger, number, at_ms=1_000, value=value)
    assert (ledger.verdict()["succeeded"], ledger.verdict()["failed"]) == (2, 1)
    assert (ledger.goodput_per_s(0, 1_000), ledger.goodput_per_s(1_000, 2_000)) == (0, 2)


def test_requests_of_others_are_not_of_interest(ledger: Ledger) -> None:
    ledger.enter(REQUESTS, b"somebody-else", b"{}", 0)
    ledger.enter(RESPONSES, None, SUCCEEDED, 0)
    assert ledger.verdict()["requests"] == 0
