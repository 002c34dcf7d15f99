"""The walk through all queries names each that has no answer, and every rule that is ill."""

from typing import Any

import httpx
import pytest

from infra.grafana.walk import walk

QUERIES = 100
"""There are more."""


def wrong(result: list[Any], *rules: dict[str, str], unknown: str = "") -> list[str]:
    """What it finds at a Prometheus that gives one result to every query, and none to the count of the unknown."""

    def answer(request: httpx.Request) -> httpx.Response:
        counts_unknown = request.url.params.get("query") == f"count({unknown})"
        found = {"result": [] if counts_unknown else result}
        data = found if request.url.path == "/api/v1/query" else {"groups": [{"rules": list(rules)}]}
        return httpx.Response(200, json={"status": "success", "data": data})

    with httpx.Client(base_url="http://prometheus", transport=httpx.MockTransport(answer)) as client:
        return list(walk(client))


def test_nothing_is_wrong_where_all_is_answered() -> None:
    assert wrong([{"value": [0, "0"]}, {"value": [0, "2.5"]}], rule("ok")) == []


@pytest.mark.parametrize(
    ("result", "why"), [([], "no answer"), ([{"value": [0, "1"]}, {"value": [0, "NaN"]}], "no number")]
)
def test_a_query_without_an_answer_is_named_with_its_panel(result: list[Any], why: str) -> None:
    found = wrong(result)
    assert len(found) > QUERIES
    assert all(f": {why}" in line for line in found)
    assert any(line.startswith("headway-lag, Furthest behind, interactive, A: ") for line in found)


def rule(health: str, **more: str) -> dict[str, str]:
    query = 'sum by (topic) (increase(headway_dead_letters_total[15m])) > scalar(headway:limit{window="1d"})'
    query += ' and kafka_consumergroup_lag{topic=~".*-tasks-.+"} > 0 or absent(up{job="host"})'
    return {"name": "DeadLetters", "health": health, "query": query, **more}


def test_a_rule_that_cannot_be_evaluated_is_named_with_its_error() -> None:
    ill = rule("err", lastError="many-to-many matching")
    assert wrong([{"value": [0, "1"]}], ill) == ["rule DeadLetters: err: many-to-many matching"]


@pytest.mark.parametrize(
    "unknown",
    [
        "headway_dead_letters_total",
        'headway:limit{window="1d"}',
        'kafka_consumergroup_lag{topic=~".*-tasks-.+"}',
        'up{job="host"}',
    ],
)
def test_a_rule_that_reads_what_is_not_there_is_named_with_that(unknown: str) -> None:
    found = wrong([{"value": [0, "1"]}], rule("ok"), unknown=unknown)
    assert found == [f"rule DeadLetters: there is no {unknown}"]


def test_a_prometheus_that_refuses_is_an_error() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(503))
    with httpx.Client(base_url="http://prometheus", transport=transport) as client, pytest.raises(httpx.HTTPError):
        list(walk(client))
