"""Spans on their way to a collector: what it gets, and that nobody waits for it."""

import threading
from collections.abc import Iterator
from uuid import UUID

import pytest

from schemas import ids
from services.chassis.otlp import OtlpTracer
from services.chassis.tracing import Kind, Span, Trace, span_id
from tests.otlp import Collector, collector

RUN_ID = ids.run_id("acme", "r1")
TRACE = Trace(RUN_ID, UUID(RUN_ID).int, None, sampled=True)
T0 = 1_700_000_000_000
JOIN_S = 15.0


def span(name: str = "step/a", **more: object) -> Span:
    fields = {"parent": "run", "start_ms": T0, "end_ms": T0 + 1.5, **more}
    return Span(f"the {name}", TRACE, name, **fields)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def nobody_stays() -> Iterator[None]:
    """A thread of the SDK that goes on sending draws random numbers, in the middle of another test's."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(JOIN_S)
        assert not thread.is_alive(), thread


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.endpoint)
        yield found


@pytest.fixture
def deaf(there: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The collector takes requests, and answers once this is set."""
    take, heard = there.take, threading.Event()

    def hold(path: str, body: bytes) -> None:
        heard.wait()
        take(path, body)

    monkeypatch.setattr(there, "take", hold)
    yield heard
    heard.set()


def test_a_span_arrives_as_it_was_told(there: Collector) -> None:
    tracer = OtlpTracer("worker", "w1")
    about = {"headway.step": "a", "headway.attempt": 2, "headway.cost_usd": 0.5}
    tracer.record([span(kind=Kind.CLIENT, attributes=about, links=("step/b", "step/c"), error="engine_failed")])
    tracer.close()
    (received,) = there.received
    found = received.span
    assert there.paths == {"/v1/traces"}
    assert received.service == "headway-worker"
    assert (found.name, found.kind) == ("the step/a", found.SPAN_KIND_CLIENT)
    assert found.trace_id == UUID(RUN_ID).bytes
    assert found.span_id == span_id(RUN_ID, "step/a").to_bytes(8, "big")
    assert found.parent_span_id == span_id(RUN_ID, "run").to_bytes(8, "big")
    assert (received.began_ms, received.ended_ms) == (T0, T0 + 1.5)
    assert [link.span_id for link in found.links] == [
        span_id(RUN_ID, name).to_bytes(8, "big") for name in ("step/b", "step/c")
    ]
    assert received.error == "engine_failed"
    assert received.attributes == {"headway.run_id": RUN_ID, **about}


def test_a_first_span_has_the_clients_for_a_parent_or_none(there: Collector) -> None:
    tracer = OtlpTracer("aggregator", "a1")
    asked = Trace(RUN_ID, 7, caller=9, sampled=True)
    tracer.record([span("run", parent=None), Span("asked", asked, "run", None, T0, T0)])
    tracer.close()
    parents = {received.span.name: received.span.parent_span_id for received in there.received}
    assert parents == {"the run": b"", "asked": (9).to_bytes(8, "big")}


def test_a_span_never_ends_before_it_began(there: Collector) -> None:
    tracer = OtlpTracer("worker", "w1")
    tracer.record([span(end_ms=T0 - 5)])
    tracer.close()
    assert there.received[0].ms == 0


def test_nobody_waits_for_a_collector_that_does_not_answer(
    there: Collector, deaf: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    tracer = OtlpTracer("worker", "w1")
    for number in range(1_000):
        tracer.record([span(f"step/{number}")])
    tracer.close()
    assert there.received == [], "it has not answered, and yet we are here"
    deaf.set()


def test_a_collector_that_is_away_costs_nothing_but_the_spans(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with collector() as gone:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", gone.endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")  # s; it tries no second time
    tracer = OtlpTracer("worker", "w1")
    tracer.record([span()])
    tracer.close()
    assert "Failed to export spans" in caplog.text


def test_a_run_does_not_fail_for_its_trace(there: Collector) -> None:
    def broken() -> Iterator[Span]:
        yield span()
        raise ZeroDivisionError

    tracer = OtlpTracer("worker", "w1")
    tracer.record(broken())
    tracer.close()
    assert [received.span.name for received in there.received] == ["the step/a"]


@pytest.mark.parametrize(("share", "at_least", "at_most"), [("0", 0, 0), ("0.25", 200, 300), ("1", 1_000, 1_000)])
def test_a_share_of_the_runs_is_traced(
    there: Collector, monkeypatch: pytest.MonkeyPatch, share: str, at_least: int, at_most: int
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", share)
    tracer = OtlpTracer("orchestrator", "o1")
    sampled = sum(tracer.samples(ids.run_id("acme", str(number))) for number in range(1_000))
    tracer.close()
    assert at_least <= sampled <= at_most
