"""Alerts are complete, ask only for what exists, and have a page that says what to do."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser as ql
import pytest
import yaml

from infra.grafana import lag
from infra.grafana.queries import documents, queries
from tests.unit.infra.composed import composed
from tests.unit.infra.promql import exposed, names, unguarded_divisions
from tests.unit.infra.rules import PROMETHEUS, Rule, alerts, labels_of, recorded, rules
from tests.unit.infra.synthetic import MINUTES, series

ALERTS = {
    "HeadwayLagSecondsHigh",
    "HeadwayLagUnreadable",
    "HeadwaySLOBurn",
    "HeadwayDeadLetters",
    "HeadwayBudgetBurn",
    "HeadwayWatermarkStuck",
    "HeadwayBreakerOpen",
    "HeadwayServiceDown",
}
RUNBOOKS = Path("docs/runbooks")
LABEL = re.compile(r"\$labels\.(\w+)")
PROMTOOL = shutil.which("promtool")

by_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")


def promtool(*arguments: object) -> str:
    """What it says. It ends with an error where it finds one."""
    assert PROMTOOL
    done = subprocess.run([PROMTOOL, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_alert_that_was_promised_is_there() -> None:
    assert {alert["alert"] for alert in alerts()} == ALERTS


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_every_expression_reads_what_somebody_exposes_and_divides_by_nothing_that_is_zero(rule: Rule) -> None:
    known, expr = {**exposed(), **recorded()}, ql.parse(rule["expr"])
    assert names(expr) <= known.keys()
    labels_of(rule, known)
    assert unguarded_divisions(expr) == []


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_every_alert_waits_says_how_bad_it_is_and_where_to_look(alert: Rule) -> None:
    assert re.fullmatch(r"\d+[mh]", alert["for"])
    assert alert["labels"]["severity"] in ("critical", "warning")
    said = alert["annotations"]
    assert said["summary"].endswith(".")
    assert said["description"].endswith(".")
    assert said["runbook_url"] == f"docs/runbooks/{alert['alert']}.md"
    assert said["dashboard"].removeprefix("/d/").partition("?")[0] in documents()
    has = labels_of(alert, {**exposed(), **recorded()})
    assert {label for text in said.values() for label in LABEL.findall(text)} <= has


@pytest.mark.parametrize("lane", lag.LIMITS)
def test_a_lane_turns_red_where_its_alert_speaks(lane: str) -> None:
    (alert,) = [alert for alert in alerts() if alert["labels"].get("lane") == lane]
    assert re.findall(r"\) > (\d+)", alert["expr"]) == [str(lag.LIMITS[lane].bad)]


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == ALERTS
    for path in RUNBOOKS.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        found = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert text.startswith(f"# {path.stem}\n"), path
        assert found == ["What it means", "Look", "Do", "Over when"], path


def cases(name: str) -> list[dict[str, Any]]:
    """Of Prometheus's own tests: each says which alerts of this name there are at some moment."""
    files = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in (PROMETHEUS / "tests").glob("*.yml")]
    tests = [test for file in files for test in file["tests"]]
    return [case for test in tests for case in test.get("alert_rule_test", ()) if case["alertname"] == name]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_every_rule_of_an_alert_is_shown_firing_and_not_firing(alert: Rule) -> None:
    fires = {
        any(alert["labels"].items() <= fired["exp_labels"].items() for fired in case["exp_alerts"])
        for case in cases(alert["alert"])
    }
    assert fires == {True, False}


def test_prometheus_looks_where_compose_runs_things() -> None:
    services = composed("infra/compose.gpu.yml")["services"]
    jobs = {
        job["job_name"]: job for job in yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
    }
    assert jobs.keys() == {"orchestrator", "aggregator", "autoscaler", "host", "vllm", "triton", "prometheus"}
    found = [source for job in jobs.values() for source in job.get("dns_sd_configs", ())]
    assert {name for source in found for name in source["names"]} <= services.keys()
    assert [source["port"] for source in found] == [9101, 9102, 9103, 9104, 8000, 8002]


@by_promtool
def test_prometheus_takes_its_configuration() -> None:
    said = promtool("check", "config", PROMETHEUS / "prometheus.yml")
    assert "SUCCESS: 3 rule files found" in said


@by_promtool
def test_alerts_fire_when_they_should_and_only_then() -> None:
    promtool("test", "rules", *sorted((PROMETHEUS / "tests").glob("*.yml")))


@by_promtool
def test_every_query_of_every_panel_has_an_answer_in_a_busy_plane(tmp_path: Path) -> None:
    """Evaluated by Prometheus's own engine: it also finds what a parser cannot, like labels that match twice."""
    expressions = [query.expr for document in documents().values() for query in queries(document)]
    answered = [
        {"expr": f"count({expr}) > bool 0", "eval_time": f"{MINUTES}m", "exp_samples": [{"labels": "{}", "value": 1}]}
        for expr in expressions
    ]
    assert len(answered) > 100
    test = {"interval": "1m", "input_series": list(series()), "promql_expr_test": answered}
    files = [str(path.absolute()) for path in (PROMETHEUS / "rules").glob("*.yml")]
    written = tmp_path / "busy.yml"
    written.write_text(json.dumps({"rule_files": files, "evaluation_interval": "1m", "tests": [test]}))
    promtool("test", "rules", written)
