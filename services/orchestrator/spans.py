"""Where a run's trace begins: its admission."""

from collections.abc import Iterator
from typing import TypeVar

from schemas.base import LogTime
from schemas.events import RunRejected, RunStarted
from services.chassis.tracing import RUN, Kind, Span, Trace, Tracer, new_traceparent

Opening = TypeVar("Opening", RunStarted, RunRejected)


def traced(opening: Opening, tracer: Tracer) -> Opening:
    """With the client's trace, or else one of its own: the same however often the request is admitted."""
    if opening.traceparent is not None:
        return opening
    traceparent = new_traceparent(opening.run_id, sampled=tracer.samples(opening.run_id))
    return opening.model_copy(update={"traceparent": traceparent})


def admission(opening: RunStarted | RunRejected, now: LogTime) -> Iterator[Span]:
    """From the request's record to what it became; none for a run that is not sampled.

    A request that was sent twice is admitted twice.
    """
    trace, request = Trace.of(opening), opening.request
    if not trace.sampled:
        return
    yield Span(
        "admission",
        trace,
        f"admission/{request.topic}/{request.partition}/{request.offset}",
        RUN,
        request.log_time,
        now,
        Kind.CONSUMER,
        {
            "headway.tenant": opening.tenant,
            "messaging.system": "kafka",
            "messaging.destination.name": request.topic,
            "messaging.destination.partition.id": str(request.partition),
            "messaging.kafka.offset": request.offset,
        },
        error=opening.error.code if isinstance(opening, RunRejected) else None,
    )
