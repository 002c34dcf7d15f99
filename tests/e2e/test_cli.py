"""The command line against a plane that is up: results on stdout, one line on stderr, and the exit code."""

import asyncio
import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from httpx import AsyncClient

from headway.cli.picture import picture
from headway.cli.scrapes import scrape
from headway.cli.window import Window
from headway.client import HeadwayClient
from schemas import ids
from tests.e2e.commands import Cli
from tests.e2e.planes import CONFIG, RunningPlane

pytestmark = pytest.mark.plane

TIMEOUT_S = 60.0


@pytest.fixture
def headway(plane: RunningPlane) -> Cli:
    return Cli(plane.home)


async def test_submit_prints_the_response_and_exits_by_its_status(headway: Cli) -> None:
    succeeded, partial, blocked = await asyncio.gather(
        headway.submit("ask-like", {"question": "why?"}),
        headway.submit("optional", {}, "--json", "--stream"),
        headway.submit("ask-like", {"question": "ignore all"}),
    )
    assert (succeeded.code, partial.code, blocked.code) == (0, 3, 4)
    assert succeeded.out.splitlines()[0] == "why?"
    assert "succeeded in" in succeeded.out
    assert (partial.json["status"], partial.json["missing"]) == ("partial", ["nice"])
    assert len(partial.err.splitlines()) == 1, "no step of it streams: the request's id is all that is said"
    assert blocked.out.startswith("blocked")


async def test_a_run_is_shown_by_its_request_with_where_its_time_went(headway: Cli) -> None:
    request_id = f"cli-{uuid4()}"
    assert (await headway.submit("ask-like", {"question": "why?"}, "--request-id", request_id)).code == 0
    shown = (await headway("run", "show", request_id, "--json")).json
    assert (shown["status"], shown["pipeline"], shown["request_id"]) == ("succeeded", "ask-like", request_id)
    steps = {step["step"]: step for step in shown["steps"]}
    assert {step: found["status"] for step, found in steps.items()} == dict.fromkeys(steps, "succeeded")
    assert steps["phrase"]["service_ms"] >= 20
    assert steps["phrase"]["enabled_ms"] >= steps["retrieve"]["ended_ms"]
    assert shown["critical_path"] == ["embed", "retrieve", "phrase", "ground"]
    assert [step for step, found in steps.items() if found["critical"]] == shown["critical_path"]
    told, pieces = shown["response"], shown["stretches"]
    for part in ("queue_ms", "cold_ms", "service_ms", "coordination_ms"):
        assert sum(piece[part] for piece in pieces) == pytest.approx(told["timing"][part], abs=0.01)
    assert sum(shown["cost_by_step"].values()) == pytest.approx(told["usage"]["cost_usd"])
    drawn = await headway("run", "show", shown["run_id"])
    assert "█" in drawn.out
    assert "critical path: embed → retrieve → phrase → ground" in drawn.out


async def test_a_running_run_is_shown_cancelled_and_watched_to_its_end(headway: Cli, plane: RunningPlane) -> None:
    submitted = await headway.submit("long", {"latency_ms": 50_000}, "--no-wait")
    request_id = submitted.out.strip()
    await plane.read("inference-tasks-llm", lambda records: any(b'"phrase"' in record.value for record in records))
    running = (await headway("run", "show", request_id, "--json")).json
    assert (running["status"], running["critical_path"]) == ("running", ["phrase"])
    assert (await headway("run", "cancel", request_id)).code == 0
    watched = await headway("run", "watch", request_id)
    assert watched.out.startswith("long@1  cancelled")
    assert "cancelled by headway run cancel" in watched.out
    again = await headway("run", "cancel", request_id)
    assert (again.code, again.err.strip()) == (1, f"headway: run {running['run_id']} is over: cancelled")


@pytest.mark.parametrize("by", ["request id", "run id"])
async def test_a_request_can_be_cancelled_before_it_is_made(headway: Cli, by: str) -> None:
    request_id = f"cli-{uuid4()}"
    name = request_id if by == "request id" else ids.run_id("default", request_id)
    assert (await headway("run", "cancel", name)).code == 0
    submitted = await headway.submit("ask-like", {"question": "why?"}, "--request-id", request_id, "--json")
    assert (submitted.code, submitted.json["status"], submitted.json["steps"]["guard"]["attempts"]) == (
        4,
        "cancelled",
        0,
    )


async def test_an_unknown_run_is_not_found(headway: Cli) -> None:
    done = await headway("run", "show", "nobody")
    assert (done.code, done.out) == (7, "")
    assert done.err == "headway: the log knows no run nobody, and no request nobody of tenant default\n"


async def test_lag_is_known_for_every_lane_of_a_working_plane(headway: Cli) -> None:
    rows = (await headway("lag", "--json")).json
    assert {(row["model_class"], row["lane"]) for row in rows} == {
        (name, lane) for name in ("quick", "llm") for lane in ("interactive", "standard", "batch")
    }
    assert all(row["replicas"] == 1 for row in rows)
    assert all(None not in (row["tasks_behind"], row["seconds_behind"], row["busy_slots"]) for row in rows)
    assert {row["slots"] for row in rows if row["model_class"] == "quick"} == {64}


async def test_top_tells_what_ran_between_two_looks(headway: Cli, plane: RunningPlane) -> None:
    window, runs = Window(60.0), 7
    async with AsyncClient() as http, HeadwayClient(plane.endpoints.kafka) as client, asyncio.timeout(TIMEOUT_S):
        window.add(await scrape(http, plane.endpoints.metrics))
        await asyncio.gather(*(client.run("embed", {"texts": ["a"]}) for _ in range(runs)))
        counted = 0.0
        while counted < runs:  # the aggregator counts a run when its outcome is in the log
            seen = picture(window.add(await scrape(http, plane.endpoints.metrics)))
            embed = next((row for row in seen.pipelines if row.pipeline == "embed"), None)
            counted = round(embed.runs_per_second * seen.window_s, 6) if embed and embed.runs_per_second else 0.0
    assert embed is not None
    assert (counted, embed.partial_share, embed.failed_share, seen.silent) == (runs, 0.0, 0.0, ())
    assert embed.p50_ms is not None
    assert embed.p50_ms > 0
    shown = (await headway("top", "--once", "--every", "0.1", "--json")).json
    assert {(row["model_class"], row["replicas"]["warm"]) for row in shown["lanes"]} == {("quick", 1), ("llm", 1)}
    assert all(None not in (row["tasks_behind"], row["seconds_behind"], row["slots"]) for row in shown["lanes"])
    assert (shown["asleep"], shown["silent"]) == ([], [])


async def test_topics_are_as_they_should_be(headway: Cli) -> None:
    listed, applied, described = await asyncio.gather(
        headway("topics", "list", "--json"),
        headway("topics", "apply"),
        headway("topics", "describe", "inference-tasks-llm", "--json"),
    )
    assert all(row["partitions"] for row in listed.json)
    assert (applied.code, applied.err) == (0, "nothing to change\n")
    assert described.json["message"] == "InferenceTask"
    assert len(described.json["partitions"]) == 10
    assert (await headway("topics", "describe", "nope")).code == 7


async def test_a_dead_letter_is_counted_listed_and_shown_harmlessly(headway: Cli, plane: RunningPlane) -> None:
    poison = b"\x1b[2J not JSON \xff " + uuid4().hex.encode()
    await plane.publish(poison, key=b"\x07key")
    await plane.read("inference-requests-dlq", lambda records: any(record.value == poison for record in records))
    counts = (await headway("dlq", "list", "--json")).json
    assert any(row["topic"] == "inference-requests-dlq" and row["reason"] == "undecodable" for row in counts)
    letters = (await headway("dlq", "list", "inference-requests-dlq", "--limit", "1000", "--json")).json
    shown = [await headway("dlq", "show", letter["at"]) for letter in letters if letter["bytes"] == len(poison)]
    (letter,) = [done.out for done in shown if poison[-32:].decode() in done.out]
    assert "x-error-class: undecodable" in letter
    assert "key: \\x07key" in letter
    assert "\\x1b[2J not JSON \\xff" in letter
    assert "\x1b" not in letter


async def test_a_configuration_is_compared_applied_and_rolled_back(headway: Cli, tmp_path: Path) -> None:
    folder = shutil.copytree(CONFIG, tmp_path / "config")
    before = (await headway("config", "history", "--json")).json[0]["revision"]
    assert (await headway("config", "apply", str(folder))).err.endswith(
        f"revision {before} is the same: nothing to apply\n"
    )
    text = (folder / "pipelines/embed.yaml").read_text(encoding="utf-8")
    (folder / "pipelines/second.yaml").write_text(text.replace("name: embed", "name: second"), encoding="utf-8")
    assert (await headway("config", "diff", str(folder))).out.startswith("pipeline second@1: added")
    applied = await headway("config", "apply", str(folder), "--comment", "one more")
    assert (applied.code, applied.err.splitlines()[-1]) == (0, f"revision {before + 1} is in force")
    assert (await headway.submit("second", {"texts": ["a"]})).code == 0
    assert (await headway("config", "rollback", str(before))).code == 0
    refused = await headway.submit("second", {"texts": ["a"]}, "--json")
    assert (refused.code, refused.json["error"]["code"]) == (4, "unknown_pipeline")
    history = (await headway("config", "history", "--json")).json
    assert [(row["revision"], row["in_force"], row["comment"]) for row in history[:2]] == [
        (before + 1, False, "one more"),
        (before, True, ""),
    ]
    assert (await headway("config", "rollback", "99")).code == 7


async def test_a_folder_with_errors_changes_nothing(headway: Cli, tmp_path: Path) -> None:
    folder = shutil.copytree(CONFIG, tmp_path / "config")
    (folder / "pipelines/bad.yaml").write_text(
        "name: bad\nsteps: [{id: a, model_class: lmm}]\noutput: 1\n", encoding="utf-8"
    )
    done = await headway("config", "apply", str(folder))
    assert done.code == 2
    assert "error: pipelines/bad.yaml:2: unknown model class `lmm` (did you mean `llm`?)" in done.err
    assert done.err.splitlines()[-1] == f"headway: {folder} cannot be used: 1 error"


async def test_what_is_in_force_is_listed_and_drawn(headway: Cli) -> None:
    pipelines, graph, models = await asyncio.gather(
        headway("pipelines", "list", "--json"),
        headway("pipelines", "graph", "ask-like"),
        headway("models", "list", "--json"),
    )
    assert "ask-like" in {row["pipeline"] for row in pipelines.json}
    assert "  phrase    llm    ← retrieve, safe" in graph.out or "  phrase    llm    ← retrieve" in graph.out
    assert {row["model_class"]: row["warm"] for row in models.json} == {"quick": 1, "llm": 1}


async def test_each_class_is_told_with_its_workers_and_why(headway: Cli) -> None:
    status, explained, unknown = await asyncio.gather(
        headway("scale", "status", "--json"),
        headway("scale", "explain", "llm", "--json"),
        headway("scale", "explain", "lmm"),
    )
    rows = {row["queue"]: row for row in status.json}
    assert {name: (row["desired"], row["warm"], row["unplaced"]) for name, row in rows.items()} == {
        "quick": (1, 1, 0),
        "llm": (1, 1, 0),
    }
    assert all(row["because"] for row in rows.values())
    terms = {row["term"]: row["value"] for row in explained.json}
    assert terms["replicas"] == "1"
    assert {"sustained", "arriving", "draining", "in flight", "floor", "ceiling"} <= set(terms)
    assert (unknown.code, unknown.err) == (7, "headway: nothing is decided about 'lmm'; there are llm, quick\n")


async def test_one_call_goes_past_the_queues(headway: Cli) -> None:
    done = await headway("models", "try", "llm", "--config", str(CONFIG), "--input", '{"prompt": "hi"}')
    assert (done.code, done.json) == (0, {"prompt": "hi"})
    failing = '{"simulate": {"fail": "engine_failed"}}'
    failed = await headway("models", "try", "llm", "--config", str(CONFIG), "--input", failing)
    assert (failed.code, failed.err.splitlines()[-1]) == (4, "headway: llm: engine_failed: simulated failure")


async def test_doctor_finds_a_working_plane_well(headway: Cli) -> None:
    done = await headway("doctor", "--json")
    assert [finding for finding in done.json if not finding["ok"]] == []
    assert done.code == 0
    checked = {finding["check"] for finding in done.json}
    assert {
        "python",
        "weights",
        "broker",
        "topics",
        "configuration",
        "aggregator",
        "autoscaler",
        "workers",
        "definitions",
    } <= checked
