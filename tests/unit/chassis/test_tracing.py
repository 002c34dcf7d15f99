"""Traces: whose, which spans by which ids, and when they are kept at all."""

import subprocess
import sys

import pytest

from schemas import ids
from schemas.base import RunMessage
from services.chassis.settings import SettingsError
from services.chassis.tracing import RUN, Trace, new_traceparent, span_id, step_span, tracing

RUN_ID = ids.run_id("acme", "r1")
CLIENTS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


def message(traceparent: str | None, run_id: str = RUN_ID) -> RunMessage:
    return RunMessage(run_id=run_id, tenant="acme", traceparent=traceparent)


# ---- whose trace ----


def test_the_trace_of_a_client_is_kept() -> None:
    trace = Trace.of(message(CLIENTS))
    assert f"{trace.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{trace.caller:016x}" == "b7ad6b7169203331"
    assert trace.sampled


def test_a_client_may_want_no_trace() -> None:
    assert not Trace.of(message(CLIENTS.removesuffix("01") + "00")).sampled
    assert Trace.of(message(CLIENTS.removesuffix("01") + "03")).sampled, (
        "the first bit says it, others something else"
    )


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        "",
        "hello",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01",
    ],
)
def test_without_a_trace_it_is_found_by_the_runs_id(traceparent: str | None) -> None:
    trace = Trace.of(message(traceparent))
    assert f"{trace.trace_id:032x}" == RUN_ID.replace("-", "")
    assert trace.caller is None
    assert trace.sampled


@pytest.mark.parametrize("sampled", [True, False])
def test_a_new_trace_is_read_as_it_was_written_and_begins_with_the_run(sampled: bool) -> None:
    trace = Trace.of(message(new_traceparent(RUN_ID, sampled=sampled)))
    assert trace == Trace(RUN_ID, int(RUN_ID.replace("-", ""), 16), None, sampled)


# ---- which span ----


def test_a_span_has_the_same_id_in_every_process_and_version() -> None:
    known = "d96c31169e48a39d"
    assert f"{span_id('6f0ad7cc-01d4-57f7-b926-d7abce73ae53', step_span('embed')):016x}" == known


def test_spans_of_two_runs_in_one_trace_never_meet() -> None:
    other = ids.run_id("acme", "r2")
    names = [RUN, step_span("a"), step_span("run"), "response", "queue/a#1", "queue/a#2", "service/a#1"]
    assert len({span_id(run_id, name) for run_id in (RUN_ID, other) for name in names}) == 2 * len(names)


# ---- on or off ----


def test_nothing_is_traced_unless_asked_for() -> None:
    with tracing("worker", "w1") as tracer:
        assert tracer is None


def test_the_standard_way_to_turn_it_off_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with tracing("worker", "w1") as tracer:
        assert tracer is None


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "OTEL_EXPORTER_OTLP_ENDPOINT: write http://host:4318"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "x", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: write http://host:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL: only http/protobuf"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "1", "OTEL_…: max_export_batch_size must be less"),
    ],
)
def test_a_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, complaint: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=complaint), tracing("worker", "w1"):
        pass


def test_who_keeps_no_traces_carries_no_exporter() -> None:
    services = ", ".join(f"services.{name}.app" for name in ("orchestrator", "aggregator", "worker"))
    loads = f"import sys, {services}; print('opentelemetry.exporter' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loads], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False"]
