"""The same runs on Headway and on what people use today, one system after another, on the same machine."""

import time
from typing import Any

from headway.plane.reaper import Reaper
from loadtest.context import Context
from loadtest.peers.catalog import ABSENT, HEADWAY, PEERS, Peer
from loadtest.peers.driving import Trial
from loadtest.peers.figures import compared
from loadtest.peers.measuring import measured
from loadtest.peers.work import IDEAL_MS
from loadtest.resources import LOADTEST, Usage, cpu_between, usage

ALONE = Trial(callers=1, warm_up_s=2, duration_s=8)
"""The last one: by then each system is as warm as it gets."""
CROWDS = tuple(Trial(callers, warm_up_s=2, duration_s=6) for callers in (16, 64, 128, 256))


async def run(context: Context) -> dict[str, Any]:
    """Keys: `ideal_ms`, `peers{name}` and `headway` alike, `best_peer`, `throughput_ratio`, `added_ratio`.

    Each has `version, latency_ms, added_ms{p50,p95}, throughput_per_s, concurrency, settings`, or `unavailable`.
    Latencies are those of one caller; throughput is that of the concurrency which is best for the system.
    `idle_plane_cores`: how many cores the plane, idle, took from the peers.
    """
    reaper = Reaper()
    reaper.start()
    try:
        began, before = time.perf_counter(), usage(context.endpoints)
        peers = {peer.name: await _measured(context, peer, reaper) for peer in PEERS}
        idle_cores = _plane_cpu_s(before, usage(context.endpoints)) / (time.perf_counter() - began)
        headway = await _measured(context, HEADWAY, reaper)
    finally:
        reaper.close()
    return {
        "ideal_ms": IDEAL_MS,
        "peers": peers | {name: {"unavailable": reason} for name, reason in ABSENT.items()},
        "headway": headway,
        "idle_plane_cores": round(idle_cores, 3),
        **compared(headway, peers),
    }


def _plane_cpu_s(before: dict[str, Usage], after: dict[str, Usage]) -> float:
    return sum(cpu_s for part, cpu_s in cpu_between(before, after).items() if part != LOADTEST)


async def _measured(context: Context, peer: Peer, reaper: Reaper) -> dict[str, Any]:
    context.say(f"peers: {peer.name}")
    found = await measured(peer, (*CROWDS, ALONE), context.endpoints.kafka, reaper)
    context.say(f"peers: {peer.name}: {_told(found)}")
    return found


def _told(found: dict[str, Any]) -> str:
    if "unavailable" in found:
        return str(found["unavailable"])
    return f"{found['added_ms']['p50']} ms added, {found['throughput_per_s']} runs/s at {found['concurrency']}"
