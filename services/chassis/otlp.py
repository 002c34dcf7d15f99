"""Spans to a collector, by OTLP over HTTP. Imported only where traces are kept.

Everything that waits is done by the SDK's own thread, from a bounded queue: with the collector away spans are lost,
and a line in the log says so. The standard variables hold: OTEL_EXPORTER_OTLP_*, OTEL_BSP_*, OTEL_TRACES_SAMPLER.
"""

import threading
from collections.abc import Iterable
from hashlib import blake2b

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from services.chassis.logging import log
from services.chassis.tracing import RUN, SAMPLED, Span, Trace, span_id

CLOSE_S = 0.5
"""What is queued is sent in this time, or lost: no service stops later for its traces."""

_SCOPE = InstrumentationScope("headway")
_FLAGS = TraceFlags(SAMPLED)
_UNSET = Status()
_NANOSECONDS = 1_000_000


class OtlpTracer:
    """Hands spans to the SDK as over: it makes its own of what happens now, but ours are told from the log, later."""

    def __init__(self, service: str, instance: str) -> None:
        """Raises ValueError for variables that are no numbers, or contradict each other."""
        self._resource = Resource.create(
            {
                "service.namespace": "headway",
                "service.name": f"headway-{service}",
                "service.instance.id": instance,
            }
        )
        self._sampler = TracerProvider(shutdown_on_exit=False).sampler
        self._processor = BatchSpanProcessor(OTLPSpanExporter())

    def samples(self, run_id: str) -> bool:
        """By a digest: a sampler goes by the last 64 bits, of which a uuid's first two are always the same."""
        number = int.from_bytes(blake2b(run_id.encode(), digest_size=16).digest(), "big")
        return self._sampler.should_sample(None, number, RUN).decision is Decision.RECORD_AND_SAMPLE

    def record(self, spans: Iterable[Span]) -> None:
        """Queues them. They may be made while this asks for them: no run fails for its trace."""
        try:
            for span in spans:
                self._processor.on_end(self._over(span))
        except Exception as error:
            log.error("spans_not_made", exc_info=error)

    def close(self) -> None:
        """Sends what is queued. Blocks for at most CLOSE_S."""
        closing = threading.Thread(target=self._processor.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_S)

    def _over(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            span.title,
            context=_context(span.trace, span.name),
            parent=_parent(span),
            resource=self._resource,
            attributes={"headway.run_id": span.trace.run_id, **span.attributes},
            links=[Link(_context(span.trace, name)) for name in span.links],
            kind=SpanKind[span.kind],
            status=_UNSET if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=round(span.start_ms * _NANOSECONDS),
            end_time=round(max(span.start_ms, span.end_ms) * _NANOSECONDS),
            instrumentation_scope=_SCOPE,
        )


def _context(trace: Trace, name: str) -> SpanContext:
    return SpanContext(trace.trace_id, span_id(trace.run_id, name), is_remote=False, trace_flags=_FLAGS)


def _parent(span: Span) -> SpanContext | None:
    if span.parent is not None:
        return _context(span.trace, span.parent)
    if span.trace.caller is not None:
        return SpanContext(span.trace.trace_id, span.trace.caller, is_remote=True, trace_flags=_FLAGS)
    return None
