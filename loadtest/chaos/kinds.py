"""Every kind of fault of a chaos run: how often, on whom, and how it is made."""

import random
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from loadtest.chaos import marks
from loadtest.chaos.weather import Mood, Weather, hold
from loadtest.nemesis import broker, clocks, disk, groups, processes, store
from loadtest.nemesis.fault import Evidence
from loadtest.nemesis.parts import Parts
from loadtest.nemesis.rubbish import POISONED, Rubbish, new_id
from schemas.models import Lanes
from schemas.topics import AGGREGATOR_GROUP, EVENTS, JOINS, ORCHESTRATOR_JOINS_GROUP, REQUESTS, TASKS

SERVICE_FREEZE_S = 8.0
"""The session of orchestrator and aggregator is 6 s."""
WORKER_FREEZE_S = 12.5
"""The session of a worker is 10 s."""
BROKER_FREEZE_S = 30.0
STORE_FREEZE_S = 4.0
MOOD_S = 3.0
DISK_S = 4.0
HOUR_S = 3_600.0
WORKERS = ("worker quick", "worker slow", "worker flaky", "worker bulk", "worker ill", "worker spare")
TASK_TOPICS = tuple(TASKS + part.removeprefix("worker ") for part in WORKERS)
FORGED_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class Field:
    """What faults are made on."""

    parts: Parts
    weather: Weather
    rubbish: Rubbish
    some_run: Callable[[random.Random], str]
    """The id of a run that was asked for lately."""


Make = Callable[[Field, str, random.Random], Awaitable[Evidence]]
"""On a field and a target."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault."""

    weight: float
    targets: Sequence[str]
    make: Make
    holds: str | None = None
    """What no other fault of the kind's sort may hold meanwhile; None: the target."""
    heavy: bool = False
    rests_s: float = 0.0
    """How long nothing of the same sort may follow."""


def _kill(field: Field, target: str, _rng: random.Random) -> Awaitable[Evidence]:
    return processes.kill(field.parts, target)


def _freeze(for_s: float) -> Make:
    return lambda field, target, _rng: processes.freeze(field.parts, target, for_s)


def _restart_broker(how: signal.Signals) -> Make:
    return lambda field, _target, _rng: broker.restart(field.parts, how)


def _freeze_broker(field: Field, _target: str, _rng: random.Random) -> Awaitable[Evidence]:
    return broker.freeze(field.parts, BROKER_FREEZE_S)


def _mood(mood: Mood) -> Make:
    return lambda field, _target, _rng: hold(field.weather, mood, MOOD_S)


def _skew(service: str) -> Make:
    def make(field: Field, target: str, rng: random.Random) -> Awaitable[Evidence]:
        return clocks.shift(field.parts, target, service, rng.choice((-HOUR_S, HOUR_S)))

    return make


def _storm(group: str, topic: str, lanes: Lanes | None = None) -> Make:
    def make(field: Field, _target: str, rng: random.Random) -> Awaitable[Evidence]:
        bootstrap = field.parts.endpoints().kafka
        by_topic = {topic: (lanes.interactive, lanes.standard, lanes.batch)} if lanes else None
        return groups.storm(bootstrap, group, topic, joins=rng.randint(2, 4), stay_s=rng.uniform(0.2, 1.5),
                            lanes=by_topic)  # fmt: skip

    return make


async def _undecodable(field: Field, target: str, _rng: random.Random) -> Evidence:
    return Evidence(expected=(marks.dead_letter(await field.rubbish.undecodable(target)),))


async def _invalid(field: Field, target: str, _rng: random.Random) -> Evidence:
    if target == REQUESTS:
        request_id = new_id()
        await field.rubbish.invalid_request(request_id)
        return Evidence(expected=(marks.answered(request_id),))
    return Evidence(expected=(marks.dead_letter(await field.rubbish.invalid(target)),))


async def _huge(field: Field, target: str, _rng: random.Random) -> Evidence:
    if target == REQUESTS:
        request_id = new_id()
        await field.rubbish.huge_request(request_id)
        return Evidence(expected=(marks.answered(request_id),))
    return Evidence(expected=(marks.dead_letter(await field.rubbish.huge(target)),))


async def _unknown(field: Field, _target: str, rng: random.Random) -> Evidence:
    return Evidence(expected=(marks.passed_over(await field.rubbish.unknown_event(field.some_run(rng))),))


async def _forged(field: Field, _target: str, rng: random.Random) -> Evidence:
    """Of steps no graph has, of attempts never dispatched, and of runs that never were."""
    places = []
    for _ in range(FORGED_AT_ONCE):
        await field.rubbish.forged(field.some_run(rng), "nobody_has_this_step", 1)
        await field.rubbish.forged(field.some_run(rng), rng.choice(("join", "three", "answer", "attempt")), 99)
        places.append(await field.rubbish.forged(new_id(), "join", 1))
    return Evidence(f"{3 * FORGED_AT_ONCE} results nobody was asked for, the last at {places[-1]}")


async def _break_blobs(field: Field, _target: str, _rng: random.Random) -> Evidence:
    with field.weather.of(Mood.LARGE):
        return await disk.break_blob_folder(field.parts.home / "blobs", DISK_S)


async def _fill_disk(field: Field, target: str, _rng: random.Random) -> Evidence:
    with field.weather.of(Mood.LARGE):
        pids = await field.parts.living(target)
        return await disk.forbid_files(pids[0], DISK_S) if pids else Evidence()


async def _kill_store(field: Field, _target: str, _rng: random.Random) -> Evidence:
    return await store.kill(field.parts)


async def _freeze_store(field: Field, _target: str, _rng: random.Random) -> Evidence:
    return await store.freeze(field.parts, STORE_FREEZE_S)


async def _flush_store(field: Field, _target: str, _rng: random.Random) -> Evidence:
    return await store.flush(field.parts)


ORCHESTRATORS = ("orchestrator", "orchestrator-2")
AGGREGATORS = ("aggregator", "aggregator-2")
"""One of them at a time: the promise is about any single process of a service, and a zombie needs a successor."""
BROKER_REST_S = 12.0
"""Between two of them everybody finds each other again. The plane gives a broker up that dies again and again."""

ENGINE_REST_S = 6.0
"""Between two of them the ill worker works off what came meanwhile: else the next one may never reach its engine."""

KINDS: Mapping[str, Kind] = {
    "kill-orchestrator": Kind(12, ORCHESTRATORS, _kill, holds="orchestrator"),
    "kill-aggregator": Kind(14, AGGREGATORS, _kill, holds="aggregator"),
    "kill-worker": Kind(18, WORKERS, _kill),
    "kill-host": Kind(5, ("host",), _kill),
    "freeze-orchestrator": Kind(10, ORCHESTRATORS, _freeze(SERVICE_FREEZE_S), holds="orchestrator"),
    "freeze-aggregator": Kind(12, AGGREGATORS, _freeze(SERVICE_FREEZE_S), holds="aggregator"),
    "freeze-worker": Kind(12, WORKERS, _freeze(WORKER_FREEZE_S)),
    "kill-broker": Kind(2, ("kafka",), _restart_broker(signal.SIGKILL), heavy=True, rests_s=BROKER_REST_S),
    "stop-broker": Kind(2, ("kafka",), _restart_broker(signal.SIGTERM), heavy=True, rests_s=BROKER_REST_S),
    "freeze-broker": Kind(2, ("kafka",), _freeze_broker, heavy=True, rests_s=BROKER_REST_S),
    "kill-valkey": Kind(8, ("valkey",), _kill_store),
    "freeze-valkey": Kind(8, ("valkey",), _freeze_store),
    "flush-valkey": Kind(10, ("valkey",), _flush_store),
    "storm-aggregator": Kind(6, (AGGREGATOR_GROUP,), _storm(AGGREGATOR_GROUP, EVENTS)),
    "storm-orchestrator": Kind(5, (ORCHESTRATOR_JOINS_GROUP,), _storm(ORCHESTRATOR_JOINS_GROUP, JOINS)),
    "storm-worker": Kind(5, ("headway-worker-quick",), _storm("headway-worker-quick", TASKS + "quick", Lanes())),
    "engine-failing": Kind(8, ("ill",), _mood(Mood.ENGINE_FAILING), rests_s=ENGINE_REST_S),
    "engine-hanging": Kind(8, ("ill",), _mood(Mood.ENGINE_HANGING), rests_s=ENGINE_REST_S),
    "engine-slow": Kind(8, ("ill",), _mood(Mood.ENGINE_SLOW), rests_s=ENGINE_REST_S),
    "skew-orchestrator": Kind(4, ORCHESTRATORS, _skew("orchestrator"), holds="orchestrator"),
    "skew-aggregator": Kind(5, AGGREGATORS, _skew("aggregator"), holds="aggregator"),
    "skew-worker": Kind(4, WORKERS, _skew("worker")),
    "undecodable": Kind(12, (*POISONED, *TASK_TOPICS), _undecodable),
    "invalid": Kind(10, (*POISONED, *TASK_TOPICS), _invalid),
    "huge": Kind(5, (*POISONED, *TASK_TOPICS), _huge),
    "unknown-type": Kind(5, (EVENTS,), _unknown),
    "forged-results": Kind(10, (EVENTS,), _forged),
    "repeated-requests": Kind(8, ("clients",), _mood(Mood.REPEATED), holds="repeated"),
    "conflicting-requests": Kind(10, ("clients",), _mood(Mood.CONFLICTING), holds="conflicting"),
    "cancel-before": Kind(6, ("clients",), _mood(Mood.CANCELLED_BEFORE), holds="cancel-before"),
    "cancel-after": Kind(10, ("clients",), _mood(Mood.CANCELLED_AFTER), holds="cancel-after"),
    "break-blobs": Kind(6, ("blobs",), _break_blobs),
    "fill-disk": Kind(5, ("worker bulk",), _fill_disk),
}
HEAVY = frozenset(name for name, kind in KINDS.items() if kind.heavy)
