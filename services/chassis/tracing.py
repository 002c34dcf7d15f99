"""Traces: what became of a run, as spans for OpenTelemetry. Off unless the environment says where they go.

One trace a run: the client's, if its request has a `traceparent`, else one that has the run's own id. It travels in
the `traceparent` of every record of the run. A span has a name within its run, and its id is made of the run's id and
that name: whoever tells of it, and however often, tells of the same span, and may name a parent that another process
tells of. Spans are told once they are over, with times of the log. Prompts, inputs and outputs never are attributes.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Protocol
from uuid import UUID

from schemas.base import RunMessage
from services.chassis.settings import SettingsError

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Any of them turns traces on; the first may name another path than `/v1/traces`."""
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
SAMPLED = 0x01

RUN = "run"
"""The span of a whole run, within it."""

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def step_span(step: str) -> str:
    """The span of a step, over all its attempts, within its run."""
    return f"step/{step}"


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace of a run."""

    run_id: str
    trace_id: int
    caller: int | None
    """The client's span, within which it asked; None when the run's own is the first."""
    sampled: bool
    """Whether its spans are made: decided once, at admission or by the client."""

    @classmethod
    def of(cls, message: RunMessage) -> "Trace":
        """As the run's records carry it; where they do not, it was admitted by somebody who keeps no traces."""
        found = _TRACEPARENT.fullmatch(message.traceparent or "")
        trace_id, caller, flags = (int(part, 16) for part in found.groups()) if found else (0, 0, SAMPLED)
        if not (trace_id and caller):  # zeros name nothing
            return cls(message.run_id, UUID(message.run_id).int, None, sampled=True)
        sampled = bool(flags & SAMPLED)
        return cls(message.run_id, trace_id, caller if caller != span_id(message.run_id, RUN) else None, sampled)


def span_id(run_id: str, name: str) -> int:
    """64 bits, the same wherever they are asked for."""
    return int.from_bytes(blake2b(f"{run_id}/{name}".encode(), digest_size=8).digest(), "big")


def new_traceparent(run_id: str, *, sampled: bool) -> str:
    """Of a run whose client has no trace: its first span is the run's."""
    return f"00-{UUID(run_id).hex}-{span_id(run_id, RUN):016x}-{SAMPLED if sampled else 0:02x}"


class Kind(StrEnum):
    """What a span is to others, in OpenTelemetry's words."""

    INTERNAL = "INTERNAL"
    SERVER = "SERVER"
    CLIENT = "CLIENT"
    PRODUCER = "PRODUCER"
    CONSUMER = "CONSUMER"


@dataclass(frozen=True, slots=True)
class Span:
    """Something that is over. Times are milliseconds since the epoch by the log's clock."""

    title: str
    """What people read. One of few: no ids in it."""
    trace: Trace
    name: str
    """Names it within its run."""
    parent: str | None
    """Likewise. None for the run's own, whose parent is the client's."""
    start_ms: float
    end_ms: float
    kind: Kind = Kind.INTERNAL
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    """Spans of the same run without which it would not have begun."""
    error: str | None = None
    """A code, if it failed: a message might quote an input."""


class Tracer(Protocol):
    """Where spans go. Nothing here waits, nor fails."""

    def samples(self, run_id: str) -> bool:
        """Whether the spans of a new run without a trace are to be told."""

    def record(self, spans: Iterable[Span]) -> None:
        """Tells of them, in a while; they may be lost."""


@contextmanager
def tracing(service: str, instance: str) -> Iterator[Tracer | None]:
    """The tracer of this process, if the environment asks for one; what it still holds is sent at the end.

    Raises SettingsError for variables that cannot be followed.
    """
    if not _wanted():
        yield None
        return
    try:
        from services.chassis.otlp import OtlpTracer  # it takes 0.2 s, and most planes need none of it
    except ModuleNotFoundError as error:
        raise SettingsError(f"{_named()}: traces need more packages: pip install 'headway[tracing]'") from error
    try:
        tracer = OtlpTracer(service, instance)
    except ValueError as error:
        raise SettingsError(f"OTEL_…: {error}") from error
    try:
        yield tracer
    finally:
        tracer.close()


def _wanted() -> bool:
    named = _named()
    if named is None or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if re.fullmatch(r"https?://[^\s/]+(/\S*)?", os.environ[named]) is None:
        raise SettingsError(f"{named}: write http://host:4318, or https://host:4318")
    spoken = next(filter(None, map(os.environ.get, PROTOCOLS)), PROTOCOL)
    if spoken != PROTOCOL:
        raise SettingsError(f"{PROTOCOLS[-1]}: only {PROTOCOL} is spoken here, mostly on port 4318")
    return True


def _named() -> str | None:
    """The variable that says where traces go."""
    return next((name for name in ENDPOINTS if os.environ.get(name)), None)
