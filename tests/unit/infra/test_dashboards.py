"""Dashboards are in step with their Python, ask only for what exists, and explain themselves."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from urllib.parse import parse_qsl, urlsplit

import promql_parser as ql
import pytest

from infra.grafana import queries as asked_by
from infra.grafana.queries import Document, Query, documents, panels
from infra.grafana.render import FOLDER, rendered
from tests.unit.infra.promql import LabelReader, exposed, names, unguarded_divisions
from tests.unit.infra.rules import recorded

UIDS = ("headway-cold-starts", "headway-cost", "headway-fleet", "headway-lag", "headway-latency")
UNITS = {"s", "none", "percentunit", "ops", "reqps", "bytes", "currencyUSD", "suffix: ×"}
UNKNOWN_IN_WORDS = {"unreadable", "nothing ran", "no start", "no tokens", "–"}
LEGEND_LABEL = re.compile(r"\{\{(\w+)\}\}")
WIDTH = 24

of_every_dashboard = pytest.mark.parametrize("uid", UIDS)


@cache
def known() -> LabelReader:
    return LabelReader({**exposed(), **recorded()})


def links(panel: Document) -> Iterator[str]:
    """Of its corner, its values and its cells."""
    for link in (*panel["links"], *panel["fieldConfig"]["defaults"].get("links", ())):
        yield link["url"]
    for override in panel["fieldConfig"]["overrides"]:
        for one in override["properties"]:
            yield from (link["url"] for link in one["value"]) if one["id"] == "links" else ()


def queries(uid: str) -> Iterator[Query]:
    return asked_by.queries(documents()[uid])


def parsed(query: Query) -> ql.Expr:
    return ql.parse(query.expr)


def variables(uid: str) -> set[str]:
    return {variable["name"] for variable in documents()[uid]["templating"]["list"]}


def test_what_is_committed_is_what_the_python_makes() -> None:
    made = dict(rendered())
    assert sorted(made) == sorted(FOLDER.iterdir()) == [FOLDER / f"{uid}.json" for uid in UIDS]
    stale = [path.name for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run `python -m infra.grafana`"


def test_dashboards_have_the_names_that_others_link_to() -> None:
    assert {uid: document["uid"] for uid, document in documents().items()} == {uid: uid for uid in UIDS}


@of_every_dashboard
def test_every_expression_parses_and_reads_what_somebody_exposes(uid: str) -> None:
    known_names = {**exposed(), **recorded()}
    asked = list(queries(uid))
    assert len(asked) >= 15
    unknown = {query: missing for query in asked if (missing := names(parsed(query)) - known_names.keys())}
    assert unknown == {}
    for query in asked:
        known().of(parsed(query))


@of_every_dashboard
def test_no_expression_divides_by_what_may_be_zero(uid: str) -> None:
    assert {query: found for query in queries(uid) if (found := unguarded_divisions(parsed(query)))} == {}


@of_every_dashboard
def test_every_line_is_called_by_labels_that_it_has(uid: str) -> None:
    for query in queries(uid):
        has = known().of(parsed(query))
        assert set(LEGEND_LABEL.findall(query.legend)) <= has, query
        if query.legend and "{{" in query.legend:
            continue
        assert not has or _is_of_a_table(query), f"several lines would have one name: {query}"


def _is_of_a_table(query: Query) -> bool:
    (panel,) = [panel for panel in panels(documents()[query.dashboard]) if panel["title"] == query.panel]
    return bool(panel["type"] == "table")


@of_every_dashboard
def test_the_columns_of_a_table_have_the_labels_of_its_rows(uid: str) -> None:
    for panel in panels(documents()[uid]):
        if panel["type"] == "table":
            (organize,) = [one["options"] for one in panel["transformations"] if one["id"] == "organize"]
            labels = {name for name in organize["renameByName"] if not name.startswith("Value #")}
            for query in queries(uid):
                if query.panel == panel["title"]:
                    assert known().of(parsed(query)) == labels, query


@of_every_dashboard
def test_every_panel_says_what_it_shows_and_what_is_missing(uid: str) -> None:
    for panel in panels(documents()[uid]):
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["description"].endswith("."), panel["title"]
        assert defaults["unit"] in UNITS, panel["title"]
        assert defaults["noValue"] in UNKNOWN_IN_WORDS, panel["title"]
        assert defaults["thresholds"]["steps"][0]["value"] is None, panel["title"]
        values = [step["value"] for step in defaults["thresholds"]["steps"][1:]]
        assert all(low < high for low, high in pairwise(values)), panel["title"]


@of_every_dashboard
def test_titles_tell_panels_apart(uid: str) -> None:
    titles = [panel["title"] for panel in panels(documents()[uid])]
    assert len(titles) == len(set(titles))


@of_every_dashboard
def test_every_panel_leads_to_a_question_that_a_dashboard_answers(uid: str) -> None:
    for panel in panels(documents()[uid]):
        assert all(link["title"].endswith("?") for link in panel["links"])
        found = [urlsplit(url) for url in links(panel)]
        assert found, panel["title"]
        for link in found:
            target = link.path.removeprefix("/d/")
            assert target in UIDS, panel["title"]
            carried = {name.removeprefix("var-") for name, _ in parse_qsl(link.query) if name.startswith("var-")}
            assert carried <= variables(target), panel["title"]


@of_every_dashboard
def test_what_is_clicked_on_has_the_label_that_it_carries(uid: str) -> None:
    carried = re.compile(r"__field\.labels\.(\w+)")
    for panel in panels(documents()[uid]):
        wanted = {label for url in links(panel) for label in carried.findall(url)}
        for query in queries(uid):
            if query.panel == panel["title"]:
                assert wanted <= known().of(parsed(query)), query


@of_every_dashboard
def test_the_first_row_is_the_answer_and_no_panel_covers_another(uid: str) -> None:
    kinds = [panel["type"] for panel in documents()[uid]["panels"]]
    second = kinds.index("row", 1)
    assert kinds[0] == "row"
    assert set(kinds[1:second]) == {"stat", "table"}
    assert set(kinds[second:]) <= {"row", "timeseries", "table"}
    taken: set[tuple[int, int]] = set()
    for panel in documents()[uid]["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= WIDTH
        assert not cells & taken, panel["title"]
        taken |= cells


@of_every_dashboard
def test_a_lag_that_is_unknown_is_never_drawn_as_zero(uid: str) -> None:
    """Only counts may stand at 0 where nobody counted."""
    gauges = {"headway_lag_tasks", "headway_lag_seconds", "kafka_consumergroup_lag", "headway_watermark_age_seconds"}
    for panel in panels(documents()[uid]):
        asked = [query for query in queries(uid) if query.panel == panel["title"]]
        for query in asked:
            if names(parsed(query)) & gauges and not query.expr.startswith("count("):
                assert "vector(0)" not in query.expr, query
                assert panel["fieldConfig"]["defaults"]["noValue"] == "unreadable", query


@pytest.mark.parametrize(
    ("uid", "question"),
    [
        ("headway-lag", "headway_lag_seconds"),
        ("headway-lag", "headway_requests_shed_total"),
        ("headway-latency", "headway_step_seconds_total"),
        ("headway-latency", "headway:slo_burn"),
        ("headway-cost", "headway_cost_usd_total"),
        ("headway-cost", "headway:budget_usd:per_day"),
        ("headway-cold-starts", "headway_replicas"),
        ("headway-fleet", "headway_breaker_state"),
        ("headway-fleet", "up"),
    ],
)
def test_the_answer_is_in_sight_without_scrolling(uid: str, question: str) -> None:
    first = [panel["title"] for panel in panels(documents()[uid]) if panel["gridPos"]["y"] <= 6]
    assert question in {name for query in queries(uid) if query.panel in first for name in names(parsed(query))}
