"""The figures of systems beside each other: what their drivers report, and what is made of it."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headway.plane.reaper import Reaper
from loadtest.peers import driving, measuring
from loadtest.peers.catalog import HEADWAY, PEERS, Peer
from loadtest.peers.driving import ClosedLoop, Plan, Report, Trial
from loadtest.peers.figures import compared, system
from loadtest.peers.work import ANSWER

FIRST = {"version": "1.2", "settings": {"pool": "large"}}


def line(callers: int, latencies_s: list[float], duration_s: float = 2.0, failed: int = 0) -> str:
    trial = {"callers": callers, "warm_up_s": 1.0, "duration_s": duration_s}
    return json.dumps({**trial, "failed": failed, "latencies_s": latencies_s})


def lines(*trials: str) -> list[str]:
    return [json.dumps(FIRST), *trials]


def test_latency_is_that_of_one_caller_and_throughput_that_of_the_best_concurrency() -> None:
    alone = line(1, [0.060] * 9 + [0.075])
    figures = system(lines(line(16, [0.1] * 300), line(64, [0.2] * 500, failed=2), line(128, [0.4] * 400), alone))
    assert figures["latency_ms"] == {"p50": 60.0, "p95": 75.0, "p99": 75.0}
    assert figures["added_ms"] == {"p50": 5.0, "p95": 20.0}
    assert (figures["throughput_per_s"], figures["concurrency"]) == (250.0, 64)
    assert figures["failed"] == 2
    assert figures["by_concurrency"] == {"16": 150.0, "64": 250.0, "128": 200.0}
    assert (figures["version"], figures["settings"]) == ("1.2", {"pool": "large"})


@pytest.mark.parametrize(
    "trials",
    [
        [],
        [line(1, [0.06])],
        [line(16, [0.1]), line(1, [])],
        [line(16, [], failed=7), line(1, [0.06])],
    ],
)
def test_a_report_that_is_not_whole_has_no_figures(trials: list[str]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        system(lines(*trials))


def figures(throughput_per_s: float, added_ms: float) -> dict[str, Any]:
    return {"throughput_per_s": throughput_per_s, "added_ms": {"p50": added_ms, "p95": added_ms}}


def test_each_ratio_is_taken_to_the_peer_that_is_best_at_it() -> None:
    peers = {"many": figures(50.0, 40.0), "quick": figures(20.0, 15.0), "gone": {"unavailable": "no package"}}
    assert compared(figures(800.0, 10.0), peers) == {
        "best_peer": "many",
        "throughput_ratio": 16.0,
        "quickest_peer": "quick",
        "added_ratio": 1.5,
    }


@pytest.mark.parametrize(
    ("headway", "peers"),
    [
        ({"unavailable": "it is down"}, {"celery": figures(50.0, 40.0)}),
        (figures(800.0, 10.0), {"celery": {"unavailable": "no package"}}),
    ],
)
def test_nothing_is_compared_with_what_could_not_be_measured(
    headway: dict[str, Any], peers: dict[str, dict[str, Any]]
) -> None:
    assert set(compared(headway, peers).values()) == {None}


def test_a_plan_is_read_as_it_was_written() -> None:
    plan = Plan((Trial(1, 0.5, 2.0), Trial(16, 1.0, 3.0)), "/installed", "/data", (1, 2), "127.0.0.1:9092")
    assert Plan.from_argument(plan.as_argument()) == plan


@dataclass
class Clock:
    now: float

    def __call__(self) -> float:
        return self.now


def test_a_call_counts_if_it_ends_after_the_warm_up_and_in_time() -> None:
    clock = Clock(100.0)
    loop = ClosedLoop(Trial(callers=1, warm_up_s=1.0, duration_s=2.0), clock)
    for clock.now, begun, answer in (
        (100.9, 100.5, ANSWER),
        (101.0, 100.5, ANSWER),
        (102.9, 102.0, {"left": "nothing"}),
        (102.9, 102.5, ANSWER),
    ):
        assert loop.is_open
        loop.ended(begun, answer)
    clock.now = 103.0
    loop.ended(102.5, ANSWER)
    assert not loop.is_open
    assert loop.latencies_s == pytest.approx([0.5, 0.4])
    assert loop.failed == 1


async def test_as_many_calls_are_under_way_as_there_are_callers(tmp_path: Path) -> None:
    under_way: list[int] = []
    calls = 0

    async def call() -> object:
        nonlocal calls
        calls += 1
        under_way.append(calls)
        await asyncio.sleep(0.001)
        calls -= 1
        if under_way[-1] == 1:
            raise ConnectionError
        return ANSWER

    file = tmp_path / "report"
    plan = Plan((Trial(4, 0.0, 0.1),), "", "", (), "")
    await driving.drive(plan, call, Report(file, "1.2", {"pool": "large"}))
    first, trial = (json.loads(each) for each in file.read_text().splitlines())
    assert first == FIRST
    assert max(under_way) == 4
    assert trial["callers"] == 4
    assert len(trial["latencies_s"]) > 0


@pytest.fixture
def reaper() -> Iterator[Reaper]:
    reaper = Reaper()
    reaper.start()
    yield reaper
    reaper.close()


@pytest.mark.parametrize(
    ("peer", "reason"),
    [
        (Peer("odd", "no_such_driver"), "No module named loadtest.peers.drivers.no_such_driver"),
        (Peer("odd", "headway_plane", ("no such package",)), "Failed to parse: `no such package`"),
    ],
)
async def test_a_peer_that_cannot_be_had_is_unavailable_and_says_why(
    peer: Peer, reason: str, reaper: Reaper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = await measuring.measured(peer, [], "", reaper)
    assert list(found) == ["unavailable"]
    assert reason in found["unavailable"]


def test_every_driver_is_there_and_every_package_pinned() -> None:
    for peer in (HEADWAY, *PEERS):
        assert (Path(driving.__file__).parent / "drivers" / f"{peer.driver}.py").exists()
        assert all("==" in package for package in peer.packages)
        assert all("@" in package[1:] for package in peer.npm)
