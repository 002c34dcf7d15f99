"""Dead letters: which are meant, what a replay of one is, and why some have none."""

import json
from dataclasses import replace
from typing import Any

import pytest

from headway.cli.letters import NotReplayableError, Which, moment_ms, note, noted, replay_of
from schemas import ids
from schemas.config import Tenant
from schemas.errors import DeadLetterReason
from schemas.models import Backend, ModelClass, SimulatedEngine
from schemas.topics import EVENTS, JOINS, REQUESTS, all_topics
from services.chassis.kafka.dead_letters import dead_letter
from services.chassis.kafka.types import Outgoing, Record

T0 = 1_700_000_000_000
NOW = T0 + 60_000
CLASSES = {
    "llm": ModelClass(
        backends=(Backend(name="local", engine=SimulatedEngine(kind="simulated", latency_ms=1.0, output={})),)
    )
}
TENANTS = {"acme": Tenant(ingress_topics=("inference-requests-acme",))}
TOPICS = {topic.name: replace(topic, partitions=topic.partitions or 12) for topic in all_topics(CLASSES, TENANTS)}
Headers = tuple[tuple[str, bytes], ...]


def letter(
    value: bytes | None = b'{"pipeline": "ask"}',
    *,
    topic: str = REQUESTS,
    key: bytes | None = None,
    headers: Headers = (),
    reason: DeadLetterReason = DeadLetterReason.INVALID,
    at_ms: int = T0,
) -> Record:
    """As it stands in its topic: of a record at 3/41, stamped a minute before it."""
    out = dead_letter(Record(topic, 3, 41, T0 - 60_000, key, value, headers), reason, "why")
    return Record(out.topic, 1, 7, at_ms, out.key, out.value, out.headers)


def refusal(of: Record, now_ms: int = NOW) -> str:
    with pytest.raises(NotReplayableError) as refused:
        replay_of(of, TOPICS, now_ms)
    return str(refused.value)


# The replay -------------------------------------------------------------------------------------


def test_key_bytes_and_headers_go_back_to_where_they_stood() -> None:
    body = b'{"request_id": "r1",  "pipeline":"ask"}\n'
    out = replay_of(letter(body, key=b"\xff", headers=(("tenant", b"a"), ("tenant", b"\xfe"))), TOPICS, NOW)
    assert (out.topic, out.partition, out.key, out.value) == (REQUESTS, 3, b"\xff", body)
    assert out.headers == (
        ("tenant", b"a"),
        ("tenant", b"\xfe"),
        ("x-replayed-from", b"inference-requests-dlq/1/7"),
    )


@pytest.mark.parametrize(
    ("body", "key", "headers"),
    [
        ({"request_id": "mine"}, None, ()),
        ({}, b"mine", ()),
        ({}, None, (("x-request-id", b"mine"),)),
    ],
    ids=["body", "key", "header"],
)
def test_a_request_with_an_id_of_its_own_needs_no_other(
    body: dict[str, Any], key: bytes | None, headers: Headers
) -> None:
    out = replay_of(letter(json.dumps(body).encode(), key=key, headers=headers), TOPICS, NOW)
    assert [name for name, _ in out.headers if name == "x-request-id"] == [name for name, _ in headers]


@pytest.mark.parametrize("body", [b'{"pipeline": "ask"}', b"not JSON", None, b'{"request_id": "a\\u0000b"}'])
@pytest.mark.parametrize("key", [None, b"", b"\xff\xfe"])
def test_an_id_made_of_coordinates_is_carried_on(body: bytes | None, key: bytes | None) -> None:
    out = replay_of(letter(body, key=key), TOPICS, NOW)
    expected = ids.default_request_id(REQUESTS, 3, 41, T0 - 60_000)
    assert dict(out.headers)["x-request-id"] == expected.encode()


def test_a_replay_that_died_again_has_the_same_id_and_names_its_last_death() -> None:
    first = replay_of(letter(), TOPICS, NOW)
    again = dead_letter(
        Record(REQUESTS, 3, 99, T0 + 5, None, first.value, first.headers), DeadLetterReason.INVALID, ""
    )
    second = replay_of(Record(again.topic, 0, 8, T0 + 6, None, again.value, again.headers), TOPICS, NOW)
    assert dict(second.headers)["x-request-id"] == dict(first.headers)["x-request-id"]
    assert [value for name, value in second.headers if name == "x-replayed-from"] == [b"inference-requests-dlq/0/8"]


def test_a_tenants_own_ingress_topic_is_replayed_to() -> None:
    assert replay_of(letter(topic="inference-requests-acme"), TOPICS, NOW).topic == "inference-requests-acme"


# What has none ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        (EVENTS, "the log decides by order"),
        (JOINS, "its step failed"),
        ("inference-tasks-llm", "its step failed"),
        ("inference-tasks-gone", "its step failed"),
        ("inference-requests-gone", "no tenant has this ingress topic"),
    ],
)
def test_only_requests_are_replayed(topic: str, why: str) -> None:
    assert refusal(letter(topic=topic)).startswith(why)


def test_a_letter_that_was_cut_is_not_its_original() -> None:
    assert refusal(letter(b"x" * (3 << 20))) == f"the letter was cut: the original had {3 << 20} bytes"


def test_what_could_not_be_read_from_the_log_is_not_there_to_be_replayed() -> None:
    assert "no codec" in refusal(letter(None, headers=(("x-unreadable", b"no codec"),)))


def test_a_clients_own_header_of_that_name_is_no_obstacle() -> None:
    assert replay_of(letter(headers=(("x-unreadable", b"mine"),)), TOPICS, NOW)


def test_what_no_ingress_topic_takes_is_refused() -> None:
    assert "1048576 bytes" in refusal(letter(b"x" * (3 << 19)))


@pytest.mark.parametrize("name", ["x-orig-topic", "x-orig-partition", "x-orig-offset", "x-first-ts"])
@pytest.mark.parametrize("value", [None, b"", b"-1", b"1e3", "²".encode(), b"9" * 40, b"\xff"])
def test_a_letter_of_another_make_is_refused(name: str, value: bytes | None) -> None:
    made = letter()
    headers = tuple(header for header in made.headers if header[0] != name)
    given = headers if value is None else (*headers, (name, value))
    assert name in refusal(Record(made.topic, 1, 7, T0, None, made.value, given))


def test_a_conflict_would_only_conflict_again() -> None:
    assert "new request_id" in refusal(letter(reason=DeadLetterReason.IDEMPOTENCY_CONFLICT))


def test_credentials_are_not_there_to_be_replayed() -> None:
    assert "credentials" in refusal(letter(reason=DeadLetterReason.UNAUTHENTICATED))


def test_poison_was_answered_and_is_replayed_only_when_that_is_forgotten() -> None:
    poison = letter(reason=DeadLetterReason.POISON)
    assert "remembered until 2023-11-14T23:13:20.000+00:00" in refusal(poison, T0 + 3_599_999)
    assert replay_of(poison, TOPICS, T0 + 3_600_000)


@pytest.mark.parametrize(
    "reason", [DeadLetterReason.INVALID, DeadLetterReason.UNDECODABLE, DeadLetterReason.REQUEST_TOO_OLD]
)
def test_what_nobody_was_answered_for_is_replayed_at_any_time(reason: DeadLetterReason) -> None:
    assert replay_of(letter(reason=reason), TOPICS, T0)


# Which ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("which", "meant"),
    [
        (Which(), True),
        (Which(reason="invalid", partition=3, since_ms=T0, until_ms=T0 + 1, request_id="r1"), True),
        (Which(reason="poison"), False),
        (Which(partition=1), False),
        (Which(since_ms=T0 + 1), False),
        (Which(until_ms=T0), False),
        (Which(request_id="r2"), False),
    ],
)
def test_every_condition_must_hold(which: Which, meant: bool) -> None:
    assert (letter(b'{"request_id": "r1"}') in which) is meant


def test_a_letter_without_its_original_has_no_request_id() -> None:
    assert Record("x-dlq", 0, 0, T0, b"r1", b"{}") not in Which(request_id="r1")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("30m", NOW - 1_800_000),
        ("2023-11-14T22:13:20+00:00", T0),
        ("2023-11-14T22:13:20", T0),
        ("2023-11-15T07:13:20+09:00", T0),
    ],
)
def test_a_moment_is_so_long_ago_or_a_time(text: str, milliseconds: int) -> None:
    assert moment_ms(text, NOW) == milliseconds


def test_anything_else_is_no_moment() -> None:
    with pytest.raises(ValueError, match="'yesterday' is neither"):
        moment_ms("yesterday", NOW)


# Notes ------------------------------------------------------------------------------------------


def as_record(out: Outgoing) -> Record:
    assert out.partition is not None
    return Record(out.topic, out.partition, 9, T0, out.key, out.value, out.headers)


def test_a_note_names_what_was_replayed_in_its_partition() -> None:
    out = note("inference-requests-dlq", 2, [7, 3])
    assert (out.partition, noted(as_record(out))) == (2, frozenset({3, 7}))


def test_no_letter_passes_for_a_note() -> None:
    assert noted(letter(b"[1, 2]", headers=(("message-type", b"letters-replayed"),))) is None


@pytest.mark.parametrize("value", [None, b"", b"{", b"7", b'["a", null]', b"\xff", b"[" * 10_000])
def test_a_note_of_another_make_names_nothing(value: bytes | None) -> None:
    made = as_record(note("inference-requests-dlq", 2, []))
    assert noted(Record(made.topic, 2, 9, T0, None, value, made.headers)) == frozenset()
