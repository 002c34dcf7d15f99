"""A picture shows what Prometheus answers to a panel's own queries, and stands alone."""

import math
import re
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from infra.grafana.pictures import PICTURES, STEP_S, Line, Window, lines, now, pictures
from infra.grafana.queries import documents, panels, queries

WINDOW = Window(1_000, 1_000 + 4 * STEP_S)
LABELS = {"model_class": "llm", "lane": "batch", "pipeline": "ask", "component": "queue", "kind": "busy"}


class Prometheus:
    """Answers every query with a series of each of these values, the second of another lane."""

    def __init__(self, *values: list[tuple[int, str]]) -> None:
        self.asked: list[httpx.QueryParams] = []
        labels = (LABELS, LABELS | {"lane": "standard"})
        self._result = [{"metric": metric, "values": found} for metric, found in zip(labels, values, strict=False)]

    def client(self) -> httpx.Client:
        return httpx.Client(base_url="http://prometheus", transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.params)
        return httpx.Response(200, json={"status": "success", "data": {"result": self._result}})


def panel(title: str) -> dict[str, Any]:
    (found,) = (panel for document in documents().values() for panel in panels(document) if panel["title"] == title)
    return found


def test_all_it_asks_are_queries_of_the_dashboards() -> None:
    prometheus = Prometheus([(1_000, "1")])
    with prometheus.client() as client:
        pictures(client, WINDOW)
    known = {query.expr for document in documents().values() for query in queries(document)}
    assert {asked["query"] for asked in prometheus.asked} <= known
    assert {(asked["start"], asked["end"], asked["step"]) for asked in prometheus.asked} == {("1000", "1020", "5")}


def test_a_value_that_is_not_there_is_a_gap_and_no_zero() -> None:
    with Prometheus([(1_000, "3"), (1_010, "0.5")]).client() as client:
        [(name, values)] = lines(client, panel("Seconds behind, standard and batch"), WINDOW)
    assert name == "llm batch"
    assert values[0] == 3
    assert values[2] == 0.5
    assert [math.isnan(value) for value in values] == [False, True, False, True, True]


def test_the_greatest_come_first_and_what_stays_at_zero_is_left_out() -> None:
    title = "Seconds behind, standard and batch"
    with Prometheus([(1_000, "1")], [(1_005, "2")]).client() as client:
        assert [line.name for line in lines(client, panel(title), WINDOW)] == ["llm standard", "llm batch"]
    with Prometheus([(1_000, "0")], [(1_005, "2")]).client() as client:
        assert [line.name for line in lines(client, panel(title), WINDOW)] == ["llm standard"]
    with Prometheus([(1_000, "0")], [(1_000, "0")]).client() as client:
        assert [line.name for line in lines(client, panel(title), WINDOW)] == ["llm batch", "llm standard"]


def test_every_line_of_a_panel_has_the_name_that_its_legend_gives() -> None:
    with Prometheus([(1_000, "3")]).client() as client:
        found = lines(client, panel("Request to outcome"), WINDOW)
    assert [line.name for line in found] == ["p50", "p95", "p99"]
    assert all(isinstance(line, Line) for line in found)


def test_a_picture_is_a_file_of_its_own_with_colours_for_day_and_night() -> None:
    with Prometheus([(1_000 + STEP_S * step, str(step)) for step in range(5)]).client() as client:
        drawn = pictures(client, WINDOW)
    assert drawn.keys() == PICTURES.keys()
    for name, text in drawn.items():
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        said = "".join(root.itertext())
        for title in PICTURES[name][1]:
            assert title in said
        day, night = said.split("@media (prefers-color-scheme: dark)")
        for variable in set(re.findall(r"var\((--[\w-]+)\)", text)):
            assert f"{variable}:" in day, variable
            assert f"{variable}:" in night, variable


def test_a_panel_without_anything_to_show_is_an_error() -> None:
    with Prometheus().client() as client, pytest.raises(ValueError, match="Seconds behind, interactive"):
        pictures(client, WINDOW)


def test_now_is_what_the_clock_of_prometheus_says() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.params["query"] == "time()"
        return httpx.Response(
            200, json={"data": {"resultType": "scalar", "result": [1796064839.33, "1796064839.33"]}}
        )

    with httpx.Client(base_url="http://prometheus", transport=httpx.MockTransport(answer)) as client:
        assert now(client) == 1_796_064_839
