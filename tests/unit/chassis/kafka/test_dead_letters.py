"""Dead letters: nothing lost, nothing leaked, always small enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import DeadLetterReason
from schemas.topics import MAX_DEAD_LETTER_BYTES
from services.chassis.kafka.dead_letters import dead_letter
from services.chassis.kafka.records import fits
from services.chassis.kafka.types import Outgoing, Record


def record(
    value: bytes | None = b"{", key: bytes | None = b"k", headers: tuple[tuple[str, bytes], ...] = ()
) -> Record:
    return Record("inference-requests", 3, 41, 1_700_000_000_000, key, value, headers)


def headers_of(letter: Outgoing) -> dict[str, bytes]:
    assert len(dict(letter.headers)) == len(letter.headers)
    return dict(letter.headers)


def test_the_original_bytes_stand_beside_where_they_came_from_and_why() -> None:
    letter = dead_letter(record(headers=(("tenant", b"\xff"),)), DeadLetterReason.UNDECODABLE, "not JSON")
    assert (letter.topic, letter.key, letter.value) == ("inference-requests-dlq", b"k", b"{")
    assert headers_of(letter) == {
        "tenant": b"\xff",
        "x-error-class": b"undecodable",
        "x-error-msg": b"not JSON",
        "x-orig-topic": b"inference-requests",
        "x-orig-partition": b"3",
        "x-orig-offset": b"41",
        "x-first-ts": b"1700000000000",
    }


def test_a_task_and_its_attempt_are_named() -> None:
    letter = dead_letter(record(), DeadLetterReason.POISON, "died", task_id="r/answer#2", attempt=2)
    assert headers_of(letter)["x-task-id"] == b"r/answer#2"
    assert headers_of(letter)["x-attempt"] == b"2"


@pytest.mark.parametrize("name", ["authorization", "Authorization", "AUTHORIZATION"])
def test_credentials_are_stripped(name: str) -> None:
    letter = dead_letter(record(headers=((name, b"Bearer secret"),)), DeadLetterReason.INVALID, "no")
    assert b"secret" not in b"".join(value for _, value in letter.headers)


def test_reasons_of_an_earlier_death_are_replaced() -> None:
    earlier = (("x-error-class", b"invalid"), ("x-orig-offset", b"1"), ("X-Error-Msg", b"old"), ("a", b"b"))
    letter = dead_letter(record(headers=earlier), DeadLetterReason.POISON, "new")
    assert headers_of(letter)["x-error-class"] == b"poison"
    assert headers_of(letter)["x-orig-offset"] == b"41"
    assert "X-Error-Msg" not in headers_of(letter)
    assert headers_of(letter)["a"] == b"b"


@given(st.text())
def test_the_message_is_one_short_printable_line(message: str) -> None:
    text = headers_of(dead_letter(record(), DeadLetterReason.INVALID, message))["x-error-msg"].decode()
    assert len(text) <= 500
    assert text.isprintable()
    assert text == " ".join(text.split())


def test_a_record_without_a_value_has_a_letter_too() -> None:
    assert dead_letter(record(value=None, key=None), DeadLetterReason.INVALID, "empty").value is None


def test_what_fits_is_never_cut() -> None:
    letter = dead_letter(record(b"x" * (MAX_DEAD_LETTER_BYTES - 1_000)), DeadLetterReason.INVALID, "large")
    assert len(letter.value or b"") == MAX_DEAD_LETTER_BYTES - 1_000
    assert "x-cut-from" not in headers_of(letter)


LARGE = b"x" * (3 << 20)


@pytest.mark.parametrize(
    ("large", "keeps_key", "keeps_headers"),
    [
        (record(LARGE, headers=(("a", b"b"),)), True, True),
        (record(b"v", headers=(("a", LARGE),)), True, False),
        (record(LARGE, key=LARGE, headers=(("a", b"b"),)), False, False),
    ],
    ids=["value", "headers", "key"],
)
def test_a_record_larger_than_any_letter_is_cut_and_says_so(
    large: Record, keeps_key: bool, keeps_headers: bool
) -> None:
    letter = dead_letter(large, DeadLetterReason.INVALID, "large")
    assert fits(letter)
    assert headers_of(letter)["x-cut-from"] == b"%d" % len(large.value or b"")
    assert (letter.key == large.key, "a" in headers_of(letter)) == (keeps_key, keeps_headers)
    assert (large.value or b"").startswith(letter.value or b"")
    assert headers_of(letter)["x-orig-offset"] == b"41"
