"""Whatever stands in an ingress topic, admission has one answer to it, always the same, that can be written."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.base import RunMessage
from schemas.events import EVENT, RequestCoordinates, RunRejected, RunStarted
from schemas.requests import MAX_DEADLINE_MS
from services.orchestrator.domain.admission import RequestRecord, Undeliverable, admit
from services.orchestrator.domain.decoding import UndecodableError, UnsafeValueError, check, decode
from tests.unit.orchestrator.test_admission import ASK, FakeCatalog, record

odd_text = st.text(
    st.one_of(
        st.characters(), st.characters(whitelist_categories=("Cs", "Cc")), st.sampled_from("\x00\ud800\ufffd\r\n")
    ),
    max_size=12,
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    odd_text,
    st.sampled_from([10**400, -1, 2**63, float("nan"), float("-inf")]),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(odd_text, inner, max_size=4), max_leaves=12
)
FIELDS = (
    "pipeline",
    "input",
    "priority",
    "deadline_ms",
    "session",
    "labels",
    "request_id",
    "schema_version",
    "tenant",
)
bodies = st.builds(
    lambda body, broken: body | broken,
    st.sampled_from([ASK, {}]),
    st.dictionaries(st.one_of(st.sampled_from(FIELDS), odd_text), values, max_size=3),
)
almost_json = st.builds(
    lambda text, at, more: text[:at] + more + text[at:],
    bodies.map(lambda body: json.dumps(body).encode()),
    st.integers(0, 200),
    st.binary(max_size=3),
)
raw = st.one_of(
    st.none(),
    st.binary(max_size=60),
    almost_json,
    bodies.map(lambda body: json.dumps(body).encode()),
    st.integers(1, 3_000).map(lambda depth: b'{"pipeline":"ask","input":' + b"[" * depth + b"]" * depth + b"}"),
)
header_names = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["x-tenant", "x-request-id", "traceparent", "correlation-id", "x-unreadable", "authorization"]),
)
header_values = st.one_of(st.binary(max_size=20), st.sampled_from([b"acme", b"No Such", b"r-1", b"a\r\nb", b"\xff"]))
records = st.builds(
    lambda value, key, headers, topic: RequestRecord(record(ASK, topic=topic).coordinates, key, value, headers),
    raw,
    st.one_of(st.none(), st.binary(max_size=12)),
    st.lists(st.tuples(header_names, header_values), max_size=70).map(tuple),
    st.sampled_from(["inference-requests", "inference-requests-acme", "inference-requests-gone"]),
)


def deep(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


@given(records)
@example(record(b'{"pipeline": "ask", "input": {"question": ' + b"9" * 5_000 + b"}}"))
@example(record(b"[" * 100_000))
@example(record(deep(100_000)))
@example(record(deep(500)))
@example(record(b'{"request_id": "\\ud800", "pipeline": "ask", "input": {}}'))
@example(record(b'{"request_id": "\\ud83d\\ude00", "labels": {"\\ud800": "x"}}'))
def test_every_record_has_one_answer_that_can_be_written_and_read_back(request: RequestRecord) -> None:
    answer = admit(request, FakeCatalog())
    assert isinstance(answer, RunStarted | RunRejected | Undeliverable)
    assert answer == admit(request, FakeCatalog())
    if isinstance(answer, RunMessage):
        assert EVENT.validate_json(EVENT.dump_json(answer)) == answer
    else:
        answer.message.encode()


@given(records)
def test_a_run_that_starts_has_a_deadline_and_ids_of_one_line(request: RequestRecord) -> None:
    answer = admit(request, FakeCatalog())
    if isinstance(answer, RunStarted):
        where: RequestCoordinates = answer.request
        assert 0 < answer.deadline_at - where.log_time <= MAX_DEADLINE_MS
        for text in (
            answer.request_id,
            answer.session,
            answer.correlation_id,
            *answer.labels,
            *answer.labels.values(),
        ):
            assert text is None or not any(character < " " for character in text)


@given(st.dictionaries(st.sampled_from(FIELDS[:-1]), values, max_size=3), st.text(max_size=20))
def test_no_answer_of_any_kind_repeats_what_a_field_held(body: dict[str, Any], secret: str) -> None:
    secret = f"s3cr3t {secret}"
    for field in ("priority", "deadline_ms", "schema_version", "input"):
        answer = admit(record(json.dumps({**ASK, **body, field: secret}).encode()), FakeCatalog())
        if isinstance(answer, RunRejected):
            assert secret not in answer.error.message


@given(values)
def test_what_passes_the_check_survives_being_written_and_read(value: Any) -> None:
    try:
        check(value)
    except UnsafeValueError:
        return
    assert json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False).encode()) == value


@given(raw)
def test_bytes_are_an_object_or_undecodable(value: bytes | None) -> None:
    try:
        decoded = decode(value)
    except UndecodableError as error:
        str(error).encode()
        return
    assert isinstance(decoded, dict)


@given(st.dictionaries(odd_text, scalars, min_size=1, max_size=5))
def test_a_key_that_stands_twice_is_undecodable(body: dict[str, Any]) -> None:
    text = json.dumps(body)
    key = json.dumps(next(iter(body)))
    with pytest.raises(UndecodableError):
        decode(f"{text[:-1]}, {key}: 1}}".encode())
