"""Admission: what becomes of a request, by what is wrong with it."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from schemas import ids
from schemas.base import Json, Priority
from schemas.errors import DeadLetterReason, ErrorCode, ErrorDetail
from schemas.events import RequestCoordinates, RunRejected, RunStarted
from schemas.graphs import Graph, Step, StepKind, Target
from schemas.pipelines import PipelineSpec
from schemas.topics import MAX_RECORD_BYTES
from services.orchestrator.domain.admission import MAX_HEADERS, RequestRecord, Undeliverable, admit, refuse

LOG_TIME = 1_700_000_000_000
SPEC = PipelineSpec.model_validate(
    {
        "name": "ask",
        "version": 3,
        "priority": "interactive",
        "deadline": "30s",
        "steps": [{"id": "a", "model_class": "llm"}],
        "output": "${steps.a}",
    }
)
GRAPH = Graph(
    pipeline="ask",
    version=3,
    steps=(Step(id="a", kind=StepKind.MODEL, chain=(Target(model_class="llm"),)),),
    output="${steps.a}",
)


@dataclass(frozen=True)
class FakePipeline:
    spec: PipelineSpec = SPEC
    graph: Graph = GRAPH
    digest: str = "g1"

    def input_error(self, value: Json) -> str | None:
        return None if "question" in value else "`input.question` is required"


class FakeCatalog:
    def pipeline(self, reference: str) -> FakePipeline | None:
        return FakePipeline() if reference in ("ask", "ask@3") else None

    def tenant_of(self, ingress_topic: str) -> str | None:
        return "acme" if ingress_topic == "inference-requests-acme" else None


def record(
    body: Any,
    *,
    topic: str = "inference-requests",
    key: bytes | None = None,
    headers: tuple[tuple[str, bytes], ...] = (),
) -> RequestRecord:
    value = body if isinstance(body, bytes) else json.dumps(body).encode()
    where = RequestCoordinates(topic=topic, partition=2, offset=9, log_time=LOG_TIME)
    return RequestRecord(where, key, value, headers)


ASK = {"pipeline": "ask", "input": {"question": "why"}}


def started(request: RequestRecord) -> RunStarted:
    admitted = admit(request, FakeCatalog())
    assert isinstance(admitted, RunStarted), admitted
    return admitted


def rejected(request: RequestRecord) -> RunRejected:
    admitted = admit(request, FakeCatalog())
    assert isinstance(admitted, RunRejected), admitted
    return admitted


def undeliverable(request: RequestRecord) -> Undeliverable:
    admitted = admit(request, FakeCatalog())
    assert isinstance(admitted, Undeliverable), admitted
    return admitted


def test_the_smallest_request_starts_a_run_with_the_pipelines_defaults() -> None:
    run = started(record(ASK))
    assert (run.tenant, run.priority, run.deadline_at) == ("default", Priority.INTERACTIVE, LOG_TIME + 30_000)
    assert run.run_id == ids.run_id("default", run.request_id)
    assert (run.graph, run.graph_digest, run.response_topic) == (GRAPH, "g1", "inference-responses")


def test_a_request_says_how_it_wants_to_be_served() -> None:
    run = started(
        record(
            {**ASK, "pipeline": "ask@3", "priority": "batch", "deadline_ms": 5, "session": "s", "labels": {"a": "b"}}
        )
    )
    assert (run.priority, run.deadline_at, run.session, run.labels) == (Priority.BATCH, LOG_TIME + 5, "s", {"a": "b"})


def test_the_request_id_is_the_bodys_then_the_headers_then_the_keys_then_the_coordinates() -> None:
    header = (("x-request-id", b"from-header"),)
    assert started(record({**ASK, "request_id": "from-body"}, key=b"k", headers=header)).request_id == "from-body"
    assert started(record(ASK, key=b"from-key", headers=header)).request_id == "from-header"
    assert started(record(ASK, key=b"from-key")).request_id == "from-key"
    assert started(record(ASK)).request_id == ids.default_request_id("inference-requests", 2, 9, LOG_TIME)
    assert started(record(ASK, key=b"\xff\xfe")).request_id == started(record(ASK)).request_id


def test_a_redelivery_is_the_same_run() -> None:
    assert started(record(ASK)) == started(record(ASK))


def test_spelling_does_not_make_another_body_but_content_does() -> None:
    spaced = b'{ "input": {"question": "why"},  "pipeline": "ask" }'
    assert started(record(spaced)).body_digest == started(record({**ASK, "request_id": "x"})).body_digest
    assert started(record({**ASK, "priority": "batch"})).body_digest != started(record(ASK)).body_digest


def test_a_tenant_is_known_by_its_ingress_topic_and_answered_on_its_own() -> None:
    run = started(record(ASK, topic="inference-requests-acme", headers=(("x-tenant", b"mallory"),)))
    assert (run.tenant, run.response_topic) == ("acme", "inference-responses-acme")


def test_a_record_of_an_ingress_topic_that_no_tenant_has_any_more_is_a_dead_letter_naming_the_topic() -> None:
    letter = undeliverable(record(ASK, topic="inference-requests-gone", headers=(("x-tenant", b"acme"),)))
    assert letter.reason is DeadLetterReason.INVALID
    assert "'inference-requests-gone'" in letter.message


def test_a_rejection_is_answered_where_a_response_would_be() -> None:
    assert rejected(record({}, topic="inference-requests-acme")).response_topic == "inference-responses-acme"
    assert rejected(record({}, headers=(("x-tenant", b"acme"),))).response_topic == "inference-responses"


def test_the_tenant_header_is_believed_on_everyones_topic() -> None:
    assert started(record(ASK, headers=(("x-tenant", b"beta"),))).tenant == "beta"


def test_the_tenant_in_a_body_is_not_believed() -> None:
    assert started(record({**ASK, "tenant": "mallory"})).tenant == "default"


def test_trace_and_correlation_ids_are_carried_when_they_are_well_formed() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    run = started(record(ASK, headers=(("traceparent", trace.encode()), ("correlation-id", b"c-1"))))
    assert (run.traceparent, run.correlation_id) == (trace, "c-1")
    run = started(record(ASK, headers=(("traceparent", b"00-zz"), ("correlation-id", b"a\r\nb"))))
    assert (run.traceparent, run.correlation_id) == (None, None)


@pytest.mark.parametrize(
    ("body", "code", "named"),
    [
        ({**ASK, "schema_version": 2}, ErrorCode.INVALID_REQUEST, "schema_version"),
        ({"input": {}}, ErrorCode.INVALID_REQUEST, "pipeline"),
        ({"pipeline": "ask"}, ErrorCode.INVALID_REQUEST, "input"),
        ({"pipeline": "ask", "input": []}, ErrorCode.INVALID_REQUEST, "input"),
        ({**ASK, "priority": "urgent"}, ErrorCode.INVALID_REQUEST, "priority"),
        ({**ASK, "deadline_ms": 0}, ErrorCode.INVALID_REQUEST, "deadline_ms"),
        ({**ASK, "deadline_ms": 10**9}, ErrorCode.INVALID_REQUEST, "deadline_ms"),
        ({**ASK, "session": "a\nb"}, ErrorCode.INVALID_REQUEST, "session"),
        ({**ASK, "request_id": "a\x01b"}, ErrorCode.INVALID_REQUEST, "request_id"),
        ({**ASK, "labels": {str(n): "" for n in range(33)}}, ErrorCode.INVALID_REQUEST, "labels"),
        ({**ASK, "pipeline": "Ask/../x"}, ErrorCode.INVALID_REQUEST, "pipeline"),
        ({**ASK, "pipeline": "nope"}, ErrorCode.UNKNOWN_PIPELINE, "nope"),
        ({**ASK, "input": {}}, ErrorCode.INVALID_INPUT, "input.question"),
        (b'{"pipeline": "ask", "input": {"x": NaN}}', ErrorCode.INVALID_REQUEST, "input.x"),
    ],
)
def test_an_invalid_request_is_rejected_with_an_error_that_names_the_field(
    body: Any, code: ErrorCode, named: str
) -> None:
    run = rejected(record(body, key=b"r1"))
    assert run.error.code is code
    assert named in run.error.message
    assert run.request_id == "r1"


def test_a_request_that_is_too_large_uncompressed_is_rejected_unread() -> None:
    run = rejected(record(b"x" * (MAX_RECORD_BYTES + 1), key=b"r1"))
    assert (run.error.code, run.request_id) == (ErrorCode.CONTENT_TOO_LARGE, "r1")


def test_what_cannot_be_decoded_goes_to_the_dead_letters() -> None:
    assert undeliverable(record(b"hello")).reason is DeadLetterReason.UNDECODABLE


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ((("x-request-id", b"\xff"),), "x-request-id"),
        ((("x-anything", b"\xff"),), "x-anything"),
        ((("x-tenant", b"No Such"),), "x-tenant"),
        (tuple((f"h{n}", b"") for n in range(MAX_HEADERS + 1)), "headers"),
    ],
)
def test_bad_headers_go_to_the_dead_letters_and_are_named(headers: tuple[tuple[str, bytes], ...], named: str) -> None:
    letter = undeliverable(record(ASK, headers=headers))
    assert letter.reason is DeadLetterReason.INVALID
    assert named in letter.message


def test_a_rejection_echoes_only_what_is_fit_to_be_shown() -> None:
    run = rejected(record({"pipeline": "a\nb", "session": "s-1", "labels": {"ok": "yes", "bad": "\x00"}}))
    assert (run.pipeline, run.session, run.labels) == ("unknown", "s-1", {"ok": "yes"})
    run = rejected(record({"pipeline": 7, "labels": [1]}))
    assert (run.pipeline, run.session, run.labels) == ("unknown", None, {})


def test_an_error_message_never_repeats_the_input() -> None:
    run = rejected(record({**ASK, "priority": "my secret prompt"}))
    assert "secret" not in run.error.message


def test_an_error_message_shows_no_key_that_may_be_a_secret() -> None:
    key = "my secret prompt"
    for body in ({**ASK, "input": {key: float("nan")}}, {**ASK, "labels": {key: 1}}, {key: "\x00", **ASK}):
        assert key not in rejected(record(body)).error.message
    letter = undeliverable(record(ASK, headers=((key, b"\xff"),)))
    assert key not in letter.message


def test_a_record_that_could_not_be_read_from_the_log_is_a_dead_letter_that_says_why() -> None:
    where = record(ASK).coordinates
    letter = undeliverable(RequestRecord(where, None, None, (("x-unreadable", b"a header's name is not UTF-8"),)))
    assert (letter.reason, letter.message) == (DeadLetterReason.UNDECODABLE, "a header's name is not UTF-8")


def test_a_request_may_be_refused_though_nothing_is_wrong_with_it() -> None:
    error = ErrorDetail(code=ErrorCode.INTERNAL, message="the store is away", retryable=True)
    run = refuse(record({**ASK, "labels": {"a": "b"}}, key=b"r1"), FakeCatalog(), error)
    assert isinstance(run, RunRejected)
    assert (run.error, run.request_id, run.pipeline, run.labels) == (error, "r1", "ask", {"a": "b"})
    unreadable = refuse(record(b"hello"), FakeCatalog(), error)
    assert isinstance(unreadable, Undeliverable)
