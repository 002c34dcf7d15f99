"""Ten times the rate for a while, then back, on a plane that scales: each class follows its own rate, killed or not.

An assistant's classes are called by 100, 70 and 25 % of its runs, and three hosts take their workers. Runs come
evenly, since at a rate that a small machine can take chance alone would be more than a tenth. While the rate is high,
half of the workers, a host, and the autoscaler that leads are killed. Replicas are judged before that: what waits
where somebody was killed asks for more.

Promised: every run succeeds before its deadline, and the plane recovers from each within 15 s. No class is more than
10 s behind when the burst is over. The replicas of each class are within a tenth of its rate, give or take that
they are whole, and within two cooldowns after the burst they are as before.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from headway.client import HeadwayClient
from loadtest import mixing
from loadtest.component import worst
from loadtest.context import Context, broken
from loadtest.elastic import Course, Followed, Kind, followed
from loadtest.fleet import Fleet, Said, decided, highest, level, listening, warm
from loadtest.generator import evenly, paced
from loadtest.ledger import Ledger, following
from loadtest.nemesis.fault import now_ms
from loadtest.nemesis.parts import Parts
from loadtest.steps import Step, by_class, completed_since, mean_service_s
from loadtest.strikes import Struck, a_host, again_s, half_of_the_workers, the_leader
from schemas.models import ModelClass, ModelsFile

CONFIG = Path(__file__).parents[1] / "burst"
REPLICAS = {"autoscaler": 2, "host": 3}
ENVIRONMENT = {"HEADWAY_HOST_CPU": "8", "HEADWAY_HOST_MEMORY": "8GiB"}
"""Of each host: room for all workers together, and no more on the two that are left when one is killed."""
SHARES = {"embedding": 1.0, "retrieval": 0.7, "code": 0.25}
RATE_PER_S, TIMES = 2.1, 10.0
"""Ten times as much asks for 7, 4.9 and 1.75 workers."""
BEFORE_S = 30.0
STRUCK_AFTER_S, BETWEEN_S = 40.0, 25.0
"""From the burst's begin until the first processes are killed, and from one strike to the next, or the end."""
DEADLINE_S = 120.0
RECOVERY_S = 15.0
CAUGHT_UP_S = 10.0
COOLDOWNS = 2
READY_S = 60.0
LONG_S = 3_600.0
"""Until it is cancelled."""
EXTRA = 1_000_000
"""Numbers of the requests that are made on top of the usual ones begin here."""

Ask = Callable[[int], Coroutine[Any, Any, None]]
"""Publishes a request, by its number."""


async def run(context: Context) -> dict[str, Any]:
    """Keys: the ledger's, `scale_out_s`, `lag_peak_s`, `over_provision`, `by_class{peak_ratio}`, `again_s`."""
    kafka, fleet = context.endpoints.kafka, Fleet()
    async with listening(kafka, fleet), following(kafka, DEADLINE_S) as ledger:
        course, strikes = await _burst(context, fleet, ledger)
        await ledger.settle()
    steps = by_class(await completed_since(kafka, course.begun_ms))
    verdict, classes = ledger.verdict(), _classes(course, fleet.said, steps)
    partitions = {name: each.lanes.count for name, each in _models().items()}
    again = {strike.target: again_s(strike, fleet.said, partitions) for strike in strikes}
    return {
        "rate_per_s": course.base_per_s,
        "concurrency": None,
        **verdict,
        **summary(classes.values()),
        "by_class": {name: each.as_json() for name, each in classes.items()},
        "killed": {strike.target: strike.killed for strike in strikes},
        "again_s": again,
        **broken(**promises(verdict, classes, [each for found in again.values() for each in found.values()])),
    }


def summary(classes: Collection[Followed]) -> dict[str, float | None]:
    """Of all classes: the slowest, the furthest behind, and worker time in all."""
    needed = sum(each.needed for each in classes)
    return {
        "scale_out_s": worst([each.scale_out_s for each in classes]),
        "lag_peak_s": round(max(each.lag_peak_s for each in classes), 2),
        "over_provision": round(sum(each.over_provision * each.needed for each in classes) / needed, 3),
    }


def promises(
    verdict: Mapping[str, Any], classes: Mapping[str, Followed], recovered_s: Collection[float | None]
) -> dict[str, bool]:
    """Whether each was kept."""
    return {
        "nothing_fails": verdict["failed"] == 0,
        "nothing_lost": verdict["lost"] == 0,
        "no_conflict": verdict["conflicting"] == 0,
        "no_run_late": verdict["latency_ms"]["max"] <= DEADLINE_S * 1_000,
        "recovers_soon": all(each is not None and each <= RECOVERY_S for each in recovered_s),
        **{f"{name}_{promise}": kept for name, each in classes.items() for promise, kept in _kept(name, each)},
    }


def _kept(name: str, found: Followed) -> Iterator[tuple[str, bool]]:
    scaling = _models()[name].scaling
    yield "follows_its_rate", found.follows
    yield "catches_up", found.lag_over_s <= CAUGHT_UP_S
    yield "goes_back", found.back_s is not None and found.back_s * 1_000 <= COOLDOWNS * scaling.cooldown


def _classes(course: Course, said: Sequence[Said], steps: Mapping[str, Sequence[Step]]) -> dict[str, Followed]:
    levels, spans = decided(said), warm(said)
    kinds = {name: Kind(SHARES[name], each.slots, mean_service_s(steps[name])) for name, each in _models().items()}
    return {name: followed(course, kind, levels[name], spans[name], steps[name]) for name, kind in kinds.items()}


async def _burst(context: Context, fleet: Fleet, ledger: Ledger) -> tuple[Course, Sequence[Struck]]:
    """The usual load all along, nine times as much on top of it for a while; until all classes are as before."""
    rate_per_s = context.load.rate_per_s or RATE_PER_S
    await fleet.until(_is_ready, READY_S)
    async with HeadwayClient(context.endpoints.kafka, max_outstanding=EXTRA) as headway:
        ask = _asking(headway, ledger)
        begun_ms = now_ms()
        usual = asyncio.create_task(_load(rate_per_s, LONG_S, ask))
        try:
            await asyncio.sleep(BEFORE_S)
            burst_ms = now_ms()
            context.say(f"burst: {TIMES:g} times {rate_per_s:g} runs/s")
            strikes = await _extra(context, fleet, rate_per_s * (TIMES - 1), lambda number: ask(EXTRA + number))
            over_ms = now_ms()
            context.say("burst: over")
            await fleet.until(lambda said: _is_back(said, begun_ms, burst_ms), _cooldown_s() * COOLDOWNS + BETWEEN_S)
        finally:
            usual.cancel()
            await asyncio.wait({usual})
    return Course(begun_ms, burst_ms, strikes[0].at_ms, over_ms, now_ms(), rate_per_s, TIMES), strikes


async def _extra(context: Context, fleet: Fleet, rate_per_s: float, ask: Ask) -> Sequence[Struck]:
    """The load on top, and what is killed meanwhile."""
    parts, strikes = Parts(context.home), []
    extra = asyncio.create_task(_load(rate_per_s, STRUCK_AFTER_S + 3 * BETWEEN_S, ask))
    try:
        await asyncio.sleep(STRUCK_AFTER_S)
        for strike in (half_of_the_workers, a_host, lambda parts: the_leader(parts, fleet.said)):
            strikes.append(strike(parts))
            context.say(f"burst: killed {strikes[-1].target}, {strikes[-1].killed} processes")
            await asyncio.sleep(BETWEEN_S)
        await extra
    finally:
        extra.cancel()
    return strikes


async def _load(rate_per_s: float, duration_s: float, ask: Ask) -> None:
    """For so long."""
    numbers, start = itertools.count(), time.monotonic()
    async with asyncio.TaskGroup() as calls:
        await paced(evenly(rate_per_s, start, start + duration_s), lambda _: calls.create_task(ask(next(numbers))))


def _asking(headway: HeadwayClient, ledger: Ledger) -> Ask:
    async def ask(number: int) -> None:
        request_id = ledger.request_id(number)
        await headway.submit(mixing.PIPELINE, mixing.request(number), request_id=request_id, deadline_s=DEADLINE_S)
        ledger.acknowledged.add(request_id)

    return ask


def _is_ready(said: Sequence[Said]) -> bool:
    return decided(said).keys() >= SHARES.keys() and warm(said).keys() >= SHARES.keys()


def _is_back(said: Sequence[Said], begun_ms: int, burst_ms: int) -> bool:
    """Whether no class is to have more workers than before the burst."""
    levels, at_ms = decided(said), said[-1].at_ms
    return all(level(each, at_ms) <= highest(each, begun_ms, burst_ms) for each in levels.values())


def _cooldown_s() -> float:
    return max(each.scaling.cooldown for each in _models().values()) / 1_000


def _models() -> Mapping[str, ModelClass]:
    return ModelsFile.model_validate(yaml.safe_load((CONFIG / "models.yaml").read_text())).model_classes
