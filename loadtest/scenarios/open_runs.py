"""A hundred thousand runs that are open at once, on two aggregators of which one is killed (SIGKILL).

Promised: 1 GiB of memory for all aggregators together, and decisions again within 4 s of an assignment.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient

from loadtest.context import Context, broken
from loadtest.nemesis.fault import now_ms
from loadtest.nemesis.parts import Parts, send
from loadtest.opening import open_runs, probe
from schemas.topics import AGGREGATOR_GROUP, EVENTS, JOINS
from services.chassis.kafka.admin import Admin
from services.chassis.kafka.aiokafka_adapter import AioKafkaProducer
from services.chassis.kafka.connection import Connection

RUNS = 100_000
MEMORY_MIB = 1_024
ACTING_MS = 4_000
SNAPSHOTS_S = 40.0
"""Within this time every partition's state has been written, as in a plane that has been up for a while."""
CATCH_UP_S = 150.0
TAKE_OVER_S = 40.0
POLL_S = 0.05
PROBE_S = 0.25
LAG_POLL_S = 0.5


class TakeOver(NamedTuple):
    """When the aggregator was killed, the group had new owners, and each partition was acted upon again."""

    killed_ms: int
    assigned_ms: int
    acting_ms: Mapping[int, int]


async def run(context: Context) -> dict[str, Any]:
    """Keys: `open_runs`, `opened_per_s`, `rss_mib{empty,open,after}`, `bytes_per_run`, `assigned_ms`, `acting_ms`."""
    parts, connection = Parts(context.home), Connection(context.endpoints.kafka, client_id="loadtest")
    async with _producer(connection) as producer, Admin(connection) as admin:
        with _stopped(parts, "orchestrator"):
            empty, began = _rss_mib(parts), now_ms()
            await open_runs(producer, uuid4().hex[:8], RUNS)
            await _caught_up(admin)
            opened_s = (now_ms() - began) / 1_000
            held = _rss_mib(parts)
            context.say(f"open_runs: {RUNS} open after {opened_s:.0f} s in {held:.0f} MiB, {empty:.0f} before")
            await asyncio.sleep(SNAPSHOTS_S)
            partitions = await producer.partitions(EVENTS)
            taken = await _take_over(context, parts, producer, partitions)
            after = _rss_mib(parts)
    acting_ms = max(taken.acting_ms.values(), default=0) - taken.assigned_ms
    return {
        "open_runs": RUNS,
        "opened_per_s": round(RUNS / opened_s),
        "rss_mib": {"empty": round(empty), "open": round(held), "after": round(after)},
        "bytes_per_run": round((held - empty) * (1 << 20) / RUNS),
        "assigned_ms": taken.assigned_ms - taken.killed_ms,
        "acting_ms": acting_ms,
        **broken(
            memory=max(held, after) <= MEMORY_MIB,
            acting_again=len(taken.acting_ms) == partitions and acting_ms <= ACTING_MS,
        ),
    }


async def _take_over(context: Context, parts: Parts, producer: AioKafkaProducer, partitions: int) -> TakeOver:
    """Kills one of the aggregators, and probes every partition until all are acted upon again."""
    kafka = context.endpoints.kafka
    async with _Decisions(kafka, partitions) as decisions:
        probing = asyncio.create_task(decisions.probe(producer))
        try:
            victim = parts.instances("aggregator")[-1]
            killed_ms = now_ms()
            send(parts.pid(victim), signal.SIGKILL)
            assigned_ms = await _assigned(kafka)
            context.say(f"open_runs: {victim} was killed, assigned again after {assigned_ms - killed_ms} ms")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TAKE_OVER_S):
                    await decisions.until_all_act(assigned_ms)
        finally:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
        await parts.living(victim)  # to be counted again
        return TakeOver(killed_ms, assigned_ms, decisions.acting(assigned_ms))


class _Decisions:
    """Probe runs, and when the broker took the first step that was decided for each."""

    def __init__(self, bootstrap: str, count: int) -> None:
        """`count`: partitions of the events topic."""
        self._count = count
        self._consumer = AIOKafkaConsumer(
            JOINS, bootstrap_servers=bootstrap, enable_auto_commit=False, fetch_max_wait_ms=50
        )
        self._partitions: dict[bytes, int] = {}
        """By run id, as records are keyed."""
        self._decided: dict[bytes, int] = {}

    async def __aenter__(self) -> "_Decisions":
        await self._consumer.start()
        for partition, offset in (await self._consumer.end_offsets(self._consumer.assignment())).items():
            self._consumer.seek(partition, offset)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def probe(self, producer: AioKafkaProducer) -> None:
        """A run in every partition, again and again."""
        while True:
            for run_id, partition in (await probe(producer, uuid4().hex[:8], self._count)).items():
                self._partitions[run_id.encode()] = partition
            await asyncio.sleep(PROBE_S)

    async def until_all_act(self, from_ms: int) -> None:
        """Reads decisions until there is one of every partition from then on."""
        while len(self.acting(from_ms)) < self._count:
            for records in (await self._consumer.getmany(timeout_ms=100)).values():
                for record in records:
                    self._decided.setdefault(record.key, record.timestamp)

    def acting(self, from_ms: int) -> dict[int, int]:
        """The first decision from then on, by partition."""
        found: dict[int, int] = {}
        for run_id, at_ms in self._decided.items():
            partition = self._partitions.get(run_id)
            if partition is not None and at_ms >= from_ms:
                found[partition] = min(at_ms, found.get(partition, at_ms))
        return found


async def _assigned(bootstrap: str) -> int:
    """When the group, having noticed, had given every partition an owner: the last moment at which it had not."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    noticed, before = False, now_ms()
    try:
        async with asyncio.timeout(TAKE_OVER_S):
            while True:
                stable = await _is_stable(admin)
                if noticed and stable:
                    return before
                noticed, before = noticed or not stable, now_ms()
                await asyncio.sleep(POLL_S)
    finally:
        await admin.close()


async def _is_stable(admin: AIOKafkaAdminClient) -> bool:
    (described,) = await admin.describe_consumer_groups([AGGREGATOR_GROUP])
    _error, _group, state, *_ = described.groups[0]
    return str(state) == "Stable"


async def _caught_up(admin: Admin) -> None:
    """Until the aggregators have acted on all there is."""
    async with asyncio.timeout(CATCH_UP_S):
        while True:
            lags = await admin.lag(AGGREGATOR_GROUP, [EVENTS])
            if all(lag.committed == lag.end for lag in lags.values()):
                return
            await asyncio.sleep(LAG_POLL_S)


@asynccontextmanager
async def _producer(connection: Connection) -> AsyncIterator[AioKafkaProducer]:
    producer = AioKafkaProducer(connection)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@contextmanager
def _stopped(parts: Parts, service: str) -> Iterator[None]:
    """Its processes stand still, so that nobody dispatches what the aggregators decide."""
    pids = [parts.pid(part) for part in parts.instances(service)]
    try:
        for pid in pids:
            send(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            send(pid, signal.SIGCONT)


def _rss_mib(parts: Parts) -> float:
    """What all aggregators together hold in memory."""
    return sum(_process_rss_mib(parts.pid(part)) for part in parts.instances("aggregator"))


def _process_rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1_024 for line in lines if line.startswith("VmRSS:"))
