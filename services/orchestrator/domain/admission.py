"""Admission: a request record becomes `run-started`, `run-rejected`, or a dead letter. Pure."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ValidationError

from schemas import headers, ids
from schemas.base import Json, Output
from schemas.config import DEFAULT_TENANT
from schemas.errors import DeadLetterReason, ErrorCode, ErrorDetail
from schemas.events import RequestCoordinates, RunRejected, RunStarted
from schemas.graphs import Graph
from schemas.pipelines import PipelineSpec
from schemas.requests import InferenceRequest
from schemas.topics import MAX_RECORD_BYTES, REQUESTS, RESPONSES
from services.orchestrator.domain.decoding import MAX_PATH, UndecodableError, UnsafeValueError, check, decode, shown

MAX_HEADERS = 64
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_SAFE = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?")
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class ResolvedPipeline(Protocol):
    """A pipeline of the live configuration."""

    @property
    def spec(self) -> PipelineSpec: ...

    @property
    def graph(self) -> Graph: ...

    @property
    def digest(self) -> str: ...

    def input_error(self, value: Json) -> str | None:
        """What is wrong with an input, naming its field; None when nothing is."""


class Catalog(Protocol):
    """The live configuration, as admission reads it."""

    def pipeline(self, reference: str) -> ResolvedPipeline | None:
        """By `name` (the newest version) or `name@version`."""

    def tenant_of(self, ingress_topic: str) -> str | None:
        """The tenant who owns an ingress topic; None for everyone's."""


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A record of an ingress topic."""

    coordinates: RequestCoordinates
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """Goes to the dead-letter topic: there is nobody to answer."""

    reason: DeadLetterReason
    message: str


class RefusedError(Exception):
    """The request can be answered, with this error."""

    def __init__(self, code: ErrorCode, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.detail = ErrorDetail(code=code, message=message, retryable=retryable)


@dataclass(frozen=True, slots=True)
class _Envelope:
    """What is known of a request before its body is believed."""

    coordinates: RequestCoordinates
    tenant: str
    request_id: str
    response_topic: str
    body_digest: str
    traceparent: str | None
    correlation_id: str | None

    @property
    def run_id(self) -> str:
        return ids.run_id(self.tenant, self.request_id)


Admitted = RunStarted | RunRejected | Undeliverable
Opened = tuple[_Envelope, dict[str, Json]]


def admit(record: RequestRecord, catalog: Catalog) -> Admitted:
    """What becomes of a request. Its input is inline, whatever its size."""
    opened = _open(record, catalog)
    if not isinstance(opened, tuple):
        return opened
    envelope, body = opened
    try:
        return _started(envelope, body, catalog)
    except RefusedError as refusal:
        return _rejected(envelope, body, refusal.detail)


def refuse(record: RequestRecord, catalog: Catalog, error: ErrorDetail) -> RunRejected | Undeliverable:
    """What becomes of a request that cannot be carried on, though `admit` may have found nothing wrong with it."""
    opened = _open(record, catalog)
    return _rejected(*opened, error) if isinstance(opened, tuple) else opened


def request_id_of(record: RequestRecord) -> str:
    """The id under which a record is admitted, or would be were the rest of it in order."""
    texts = {name: value.decode(errors="replace") for name, value in record.headers}
    try:
        return _request_id(record, _body(record, texts), texts)
    except (UndecodableError, RefusedError):
        return _request_id(record, {}, texts)


def _open(record: RequestRecord, catalog: Catalog) -> Opened | RunRejected | Undeliverable:
    """Who asks, and what; or what becomes of a request of which that cannot be read."""
    try:
        texts = _header_texts(record)
        owner = _owner(record, catalog)
        tenant = owner or _named_tenant(texts)
    except RefusedError as refusal:
        return Undeliverable(DeadLetterReason.INVALID, refusal.detail.message)
    response_topic = f"{RESPONSES}-{owner}" if owner is not None else RESPONSES
    try:
        body = _body(record, texts)
    except UndecodableError as error:
        return Undeliverable(DeadLetterReason.UNDECODABLE, str(error))
    except RefusedError as refusal:
        return _rejected(_envelope(record, {}, tenant, response_topic, texts), {}, refusal.detail)
    return _envelope(record, body, tenant, response_topic, texts), body


def _body(record: RequestRecord, texts: Mapping[str, str]) -> dict[str, Json]:
    if record.value is None and headers.X_UNREADABLE in texts:
        raise UndecodableError(texts[headers.X_UNREADABLE])
    size = len(record.value or b"")
    if size > MAX_RECORD_BYTES:
        message = f"the request has {size} bytes; at most {MAX_RECORD_BYTES} are allowed, uncompressed"
        raise RefusedError(ErrorCode.CONTENT_TOO_LARGE, message)
    return decode(record.value)


def _header_texts(record: RequestRecord) -> dict[str, str]:
    """Headers as text; the last of a name counts. All must be UTF-8: half a header is none."""
    if len(record.headers) > MAX_HEADERS:
        message = f"the record has {len(record.headers)} headers; at most {MAX_HEADERS} are allowed"
        raise RefusedError(ErrorCode.INVALID_REQUEST, message)
    texts: dict[str, str] = {}
    for name, value in record.headers:
        try:
            texts[name] = value.decode()
        except UnicodeDecodeError:
            message = f"header `{shown(name)}` is not UTF-8; header values are UTF-8 text"
            raise RefusedError(ErrorCode.INVALID_REQUEST, message) from None
    return texts


def _owner(record: RequestRecord, catalog: Catalog) -> str | None:
    """The tenant whose ingress topic it came by; None on everyone's. Only these have a response topic."""
    topic = record.coordinates.topic
    owner = catalog.tenant_of(topic)
    if owner is None and topic != REQUESTS:
        message = f"no tenant has the ingress topic {topic!r} in the configuration in force"
        raise RefusedError(ErrorCode.INVALID_REQUEST, message)
    return owner


def _named_tenant(texts: Mapping[str, str]) -> str:
    """On everyone's topic the header is believed, since authentication is off."""
    tenant = texts.get(headers.X_TENANT, DEFAULT_TENANT)
    if _NAME.fullmatch(tenant) is None:
        message = f"header {headers.X_TENANT!r} is not a tenant name: lower-case letters, digits and dashes"
        raise RefusedError(ErrorCode.INVALID_REQUEST, message)
    return tenant


def _envelope(
    record: RequestRecord, body: Mapping[str, Json], tenant: str, response_topic: str, texts: Mapping[str, str]
) -> _Envelope:
    traceparent = texts.get(headers.TRACEPARENT, "")
    correlation_id = texts.get(headers.CORRELATION_ID, "")
    return _Envelope(
        coordinates=record.coordinates,
        tenant=tenant,
        request_id=_request_id(record, body, texts),
        response_topic=response_topic,
        body_digest=_digest(record, body),
        traceparent=traceparent if _TRACEPARENT.fullmatch(traceparent) else None,
        correlation_id=correlation_id if _SAFE.fullmatch(correlation_id) else None,
    )


def _request_id(record: RequestRecord, body: Mapping[str, Json], texts: Mapping[str, str]) -> str:
    """The first usable of body, header and key; else one made of the coordinates."""
    key = (record.key or b"").decode(errors="replace")
    for candidate in (body.get("request_id"), texts.get(headers.REQUEST_ID), key):
        if isinstance(candidate, str) and _SAFE.fullmatch(candidate) and _is_whole(candidate):
            return candidate
    where = record.coordinates
    return ids.default_request_id(where.topic, where.partition, where.offset, where.log_time)


def _is_whole(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" or char == "\ufffd" for char in text)


def _digest(record: RequestRecord, body: Mapping[str, Json]) -> str:
    """Of what is asked, not of how it is spelled: key order and white space do not make another request."""
    asked = {name: value for name, value in body.items() if name != "request_id"}
    text = _CANONICAL.encode(asked) if asked else (record.value or b"").hex()
    return hashlib.sha256(text.encode()).hexdigest()


def _started(envelope: _Envelope, body: dict[str, Json], catalog: Catalog) -> RunStarted:
    request = _request(body)
    pipeline = catalog.pipeline(request.pipeline)
    if pipeline is None:
        message = f"`pipeline` {request.pipeline!r} is not known; `headway pipelines list` shows what is"
        raise RefusedError(ErrorCode.UNKNOWN_PIPELINE, message)
    if (wrong := pipeline.input_error(request.input)) is not None:
        raise RefusedError(ErrorCode.INVALID_INPUT, wrong)
    spec = pipeline.spec
    deadline_ms = request.deadline_ms or spec.deadline
    return RunStarted(
        **_opening(envelope),
        input=Output(value=request.input),
        priority=request.priority or spec.priority,
        session=request.session,
        labels=request.labels,
        sensitivity=spec.sensitivity,
        deadline_at=envelope.coordinates.log_time + deadline_ms,
        graph=pipeline.graph,
        graph_digest=pipeline.digest,
    )


def _opening(envelope: _Envelope) -> dict[str, Any]:
    """What a run begins with, whether it starts or is rejected."""
    return {
        "run_id": envelope.run_id,
        "tenant": envelope.tenant,
        "traceparent": envelope.traceparent,
        "request_id": envelope.request_id,
        "request": envelope.coordinates,
        "body_digest": envelope.body_digest,
        "response_topic": envelope.response_topic,
        "correlation_id": envelope.correlation_id,
    }


def _request(body: dict[str, Json]) -> InferenceRequest:
    try:
        check(body)
        return InferenceRequest.model_validate(body)
    except UnsafeValueError as error:
        raise RefusedError(ErrorCode.INVALID_REQUEST, str(error)) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path = ".".join(shown(part) if isinstance(part, str) else str(part) for part in first["loc"])[:MAX_PATH]
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"`{path}`: {first['msg']}") from None


def _rejected(envelope: _Envelope, body: Mapping[str, Json], error: ErrorDetail) -> RunRejected:
    pipeline = body.get("pipeline")
    session = body.get("session")
    return RunRejected(
        **_opening(envelope),
        pipeline=_echo(pipeline) or "unknown",
        session=_echo(session),
        labels=_echo_labels(body.get("labels")),
        error=error,
    )


def _echo(value: Json) -> str | None:
    """A client's text, if it is fit to be shown again."""
    return value if isinstance(value, str) and _SAFE.fullmatch(value) and _is_whole(value) else None


def _echo_labels(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > 32:
        return {}
    return {key: text for key, text in value.items() if _echo(key) and _echo(text)}
