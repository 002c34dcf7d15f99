"""A revision as a service uses it."""

from typing import Any

import pytest

from schemas.config import Bundle, Revision
from services.chassis.config.live import LiveConfig
from services.chassis.config.problems import ConfigError
from services.chassis.config.resolve import digest, resolve


def bundle(**more: Any) -> Bundle:
    engine = {"kind": "simulated"}
    steps = [{"id": "a", "model_class": "llm", "input": {"q": "${input.q}"}}]
    schema = {"type": "object", "required": ["q"]}
    pipelines = [
        {"name": name, "version": version, "steps": steps, "output": "${steps.a}", "input": schema}
        for name, version in (("ask", 2), ("ask", 10), ("ask", 9), ("sales", 1))
    ]
    models = {
        "llm": {"backends": [{"name": "local", "engine": engine}, {"name": "burst", "engine": engine}]},
        "tools": {"backends": [{"name": "local", "engine": engine}]},
    }
    tenants = {"acme": {"ingress_topics": ["acme-b", "acme-a"]}, "globex": {}}
    return Bundle.model_validate({"pipelines": pipelines, "model_classes": models, "tenants": tenants, **more})


def test_a_pipeline_is_found_by_name_and_version() -> None:
    live = LiveConfig.of(Revision(revision=7, bundle=bundle()))
    assert live.revision == 7
    newest, exact = live.pipeline("ask"), live.pipeline("ask@9")
    assert newest is not None
    assert exact is not None
    assert (newest.spec.version, exact.spec.version) == (10, 9)
    assert newest is live.pipeline("ask@10")
    assert live.pipeline("ask@3") is live.pipeline("nobody") is None
    assert newest.graph == resolve(newest.spec)
    assert newest.digest == digest(newest.graph)
    assert [pipeline.spec.name for pipeline in live.pipelines] == ["ask", "ask", "ask", "sales"]


def test_an_input_is_checked_by_its_pipeline() -> None:
    pipeline = LiveConfig(1, bundle()).pipeline("ask")
    assert pipeline is not None
    assert pipeline.input_error({"q": "x"}) is None
    assert pipeline.input_error({}) == "`input` lacks the field `q`"


def test_queues_are_found_by_class_and_backend() -> None:
    live = LiveConfig(1, bundle())
    assert list(live.queues) == [("llm", "local"), ("llm", "burst"), ("tools", "local")]
    assert live.queues["llm", "burst"].topic == "inference-tasks-llm.burst"


def test_a_tenant_is_known_by_its_ingress_topic() -> None:
    live = LiveConfig(1, bundle())
    assert live.tenant_of("acme-a") == "acme"
    assert live.tenant_of("inference-requests") is None
    assert live.ingress_topics == ("acme-a", "acme-b")


def test_a_bundle_with_an_error_is_refused() -> None:
    broken = [{"name": "p", "steps": [{"id": "a", "value": "${steps.b + steps.c}"}], "output": 1}]
    with pytest.raises(ConfigError, match=r"^p@1: unknown step `b` .* \(and 1 more\)$"):
        LiveConfig(1, bundle(pipelines=broken))
    with pytest.raises(ConfigError, match="unknown model class `llm`"):
        LiveConfig(1, bundle(model_classes={}, pipelines=bundle().model_dump()["pipelines"][:1]))


def test_warnings_do_not_hinder() -> None:
    assert LiveConfig(1, bundle(pipelines=[])).pipelines == []
