"""The tracing overlay: whoever tells of spans knows where to, and Jaeger takes them there."""

from typing import Any
from urllib.parse import urlsplit

import pytest

from services.chassis.tracing import tracing
from tests.unit.infra.composed import composed, read

SERVICES: dict[str, Any] = composed("infra/compose.tracing.yml")["services"]
TELLERS = [name for name in SERVICES if name in ("orchestrator", "aggregator") or name.startswith("worker-")]
JAEGER: dict[str, Any] = read("infra/jaeger/jaeger.yaml")
ADDED = {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"}


def test_the_overlay_turns_traces_on_for_all_who_tell_of_spans() -> None:
    plain = composed()["services"]
    assert {name for name, service in SERVICES.items() if "OTEL_EXPORTER_OTLP_ENDPOINT" in str(service)} == {*TELLERS}
    for name in TELLERS:
        added = SERVICES[name]["environment"].keys() - plain[name]["environment"].keys()
        assert added == ADDED
        assert "jaeger" not in SERVICES[name]["depends_on"], "nobody waits for traces"


def test_a_plane_without_it_knows_of_no_traces() -> None:
    assert "OTEL_" not in str(composed())


@pytest.mark.parametrize("name", TELLERS)
def test_its_variables_are_understood(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ADDED:
        monkeypatch.setenv(variable, str(SERVICES[name]["environment"][variable]))
    with tracing(name, "1") as tracer:
        assert tracer is not None
        assert tracer.samples("6f0ad7cc-01d4-57f7-b926-d7abce73ae53"), "every run, unless told otherwise"


def test_jaeger_listens_where_spans_are_sent_and_people_look() -> None:
    sent_to = urlsplit(SERVICES["orchestrator"]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"])
    assert sent_to.hostname in SERVICES
    assert port(JAEGER["receivers"]["otlp"]["protocols"]["http"]) == sent_to.port
    assert [port(JAEGER["extensions"]["jaeger_query"]["http"])] == [
        int(published.split(":")[-1]) for published in SERVICES["jaeger"]["ports"]
    ]
    assert f":{port(JAEGER['extensions']['healthcheckv2']['http'])}/" in str(SERVICES["jaeger"]["healthcheck"])


def port(listener: dict[str, str]) -> int:
    return int(listener["endpoint"].split(":")[1])


def test_jaeger_keeps_a_bounded_number_of_traces_and_names_what_it_has() -> None:
    backends = JAEGER["extensions"]["jaeger_storage"]["backends"]
    (kept,) = backends
    assert backends[kept]["memory"]["max_traces"] <= 20_000
    assert JAEGER["exporters"]["jaeger_storage_exporter"] == {"trace_storage": kept}
    assert JAEGER["extensions"]["jaeger_query"]["storage"] == {"traces": kept}
    pipeline = JAEGER["service"]["pipelines"]["traces"]
    assert {part: set(names) for part, names in pipeline.items()} == {
        part: set(JAEGER[part]) for part in ("receivers", "processors", "exporters")
    }
    assert set(JAEGER["service"]["extensions"]) == set(JAEGER["extensions"])
