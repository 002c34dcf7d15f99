"""What the performance scenarios compute from what they saw, and the planes that they want."""

from pathlib import Path

import pytest

from loadtest import mixing
from loadtest.__main__ import SCENARIOS
from loadtest.scenarios import growth, scaleout
from loadtest.scenarios.enterprise import described
from loadtest.scenarios.growth import per_run
from loadtest.scenarios.scaleout import efficiency
from loadtest.scenarios.sequential import LongRun, shares_percent
from loadtest.scenarios.soak import Sample, rss_growth
from loadtest.steps import Step
from schemas.responses import Timing
from services.chassis.config.folder import load_folder


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_has_a_valid_configuration_and_says_what_it_is_for(name: str, tmp_path: Path) -> None:
    bundle, problems = load_folder(SCENARIOS[name].folder(tmp_path))
    assert bundle is not None, problems
    assert SCENARIOS[name].purpose


def test_efficiency_is_against_as_many_times_one_worker() -> None:
    assert efficiency({1: 20.0, 2: 39.0, 4: 76.0}) == {1: 1.0, 2: 0.975, 4: 0.95}


def test_the_slots_that_bound_scaleout_are_those_of_its_configuration() -> None:
    bundle, _ = load_folder(scaleout.CONFIG)
    assert bundle is not None
    bound = bundle.model_classes[scaleout.CLASS]
    assert (bound.slots, max(scaleout.WORKERS) <= bound.scaling.max_replicas) == (scaleout.SLOTS, True)


def test_fan_outs_are_as_wide_as_they_say() -> None:
    bundle, _ = load_folder(growth.CONFIG)
    assert bundle is not None
    steps = {pipeline.name: len(pipeline.steps) for pipeline in bundle.pipelines}
    assert steps == {f"wide-{width}": width + 1 for width in growth.FAN_OUTS}


def test_what_an_idle_plane_takes_is_no_runs_cost() -> None:
    cpu_s = {"aggregator": 3.0, "kafka": 1.5, "loadtest": 2.0}
    idle = {"aggregator": 0.1, "kafka": 0.2}
    assert per_run(cpu_s, idle, 10.0, 100) == {"aggregator": 20.0, "kafka": 0.0, "loadtest": 20.0, "all": 20.0}


def test_the_mix_is_exact_over_any_twenty_requests() -> None:
    for first in (0, 3, 7):
        requests = [mixing.request(number) for number in range(first, first + 20)]
        assert sum(bool(request["retrieves"]) for request in requests) == 14
        assert sum(bool(request["runs_code"]) for request in requests) == 5
    assert mixing.SESSIONS >= 50


def test_a_class_has_its_share_of_the_requests() -> None:
    embedded = [Step("embedding", 0, 30, 20.0)] * 4
    figures = described({"embedding": embedded, "code": [Step("code", 0, 500, 400.0)]})
    assert figures["code"] == {
        "calls": 1,
        "share_percent": 25.0,
        "service_ms": 400.0,
        "latency_ms": dict.fromkeys(("p50", "p95", "p99"), pytest.approx(500, rel=0.002)),
    }


def test_the_planes_share_is_of_the_time_of_all_runs() -> None:
    runs = [
        LongRun(6_030.0, 6_000.0, Timing(total_ms=6_020.0, coordination_ms=15.0)),
        LongRun(4_020.0, 4_000.0, Timing(total_ms=4_010.0, coordination_ms=10.06)),
    ]
    assert shares_percent(runs) == {"by_their_account": 0.25, "by_the_clock": 0.498}


def test_memory_grows_from_the_end_of_the_first_window() -> None:
    rss = [50, 90, 100, 101, 400, 102, 104, 105, 110, 110, 110]
    samples = [Sample(float(number), {"worker": float(mib)}) for number, mib in enumerate(rss)]
    assert rss_growth(samples, 5.0) == {"worker": round(110 / 103, 3)}
