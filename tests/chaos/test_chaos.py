"""A small chaos run: some hundred requests while everything that can fail does, judged by the history checker.

The whole one, with broker faults, is `python -m loadtest chaos --requests 20000 --faults 300 --seed 7`.
"""

from pathlib import Path

import pytest

from headway.cli.embedded import EmbeddedPlane
from loadtest.chaos.checker import check
from loadtest.chaos.clients import Plan
from loadtest.chaos.run import ordeal
from loadtest.nemesis import clocks
from loadtest.plane import UNOBSERVED
from loadtest.scenarios.chaos import CONFIG, REPLICAS, figures

pytestmark = [pytest.mark.kafka, pytest.mark.plane]

REQUESTS, RATE_PER_S, SEED = 420, 12.0, 7
KINDS = (
    "kill-orchestrator", "kill-aggregator", "kill-worker", "kill-host", "freeze-aggregator", "freeze-worker",
    "kill-valkey", "freeze-valkey", "flush-valkey", "storm-aggregator", "skew-aggregator",
    "engine-failing", "engine-hanging", "undecodable", "invalid", "forged-results", "repeated-requests",
    "conflicting-requests", "cancel-after", "break-blobs",
)  # fmt: skip


async def test_every_request_has_one_right_outcome_whatever_fails(tmp_path: Path) -> None:
    replicas = {**UNOBSERVED, **REPLICAS}
    plane = EmbeddedPlane(tmp_path, CONFIG, _ignore, ports="auto", replicas=replicas, env=clocks.environment())
    await plane.start()
    try:
        ran = await ordeal(tmp_path, Plan(REQUESTS, RATE_PER_S, SEED), len(KINDS), print, KINDS)
    finally:
        await plane.stop()
    verdict = check(ran.entries, ran.seen, ran.strikes)
    assert verdict.clean, f"{figures(verdict)['examples']}; logs are in {tmp_path / 'logs'}"
    assert verdict.accepted == REQUESTS
    assert ran.healed
    assert set(verdict.faults) == set(KINDS)


def _ignore(*_: object) -> None:
    """Progress is not of interest here."""
