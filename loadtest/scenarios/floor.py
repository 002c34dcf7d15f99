"""The floor: a chain of produce → consume hops by bare aiokafka, with the hops and record size of a two-stage run."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from loadtest.context import Context
from loadtest.measure import Measurement
from loadtest.observation import observe
from loadtest.relay import topic

HOPS = 10
"""A request, run-started, twice (step-ready, task, step-completed), run-finished, and the response."""
PROCESSES = 3
PARTITIONS = 4
RECORD_BYTES = 1_024
READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


async def run(context: Context) -> dict[str, Any]:
    """Keys: `hop_ms{p50,p99}`, `chains_per_s`, `hops`, and those of every scenario."""
    measurement = await measure(context)
    return {**measurement.as_json(), **keys(measurement)}


def keys(measurement: Measurement) -> dict[str, Any]:
    """What is particular to the floor."""
    hop_ms = {name: round(value / HOPS, 3) for name, value in measurement.latencies.summary_ms(50, 99).items()}
    return {"hops": HOPS, "hop_ms": hop_ms, "chains_per_s": round(measurement.throughput_per_s, 1)}


async def measure(context: Context) -> Measurement:
    """The same load as the scenario's, on the chain."""
    name = uuid4().hex[:8]
    kafka = context.endpoints.kafka
    async with _topics(kafka, name), _relays(kafka, name), _Chain(kafka, name) as chain:
        await chain.warm_up()
        measurement = await observe(context, chain.call)
    context.say(f"floor: {HOPS} hops, p50 {measurement.latencies.percentile(50) * 1_000:.1f} ms")
    return measurement


class _Chain:
    """Sends records into the first topic and meets them at the last."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._first, self._last = topic(name, 0), topic(name, HOPS - 1)
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
        self._consumer = AIOKafkaConsumer(
            self._last, bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50
        )
        self._waiting: dict[bytes, asyncio.Future[None]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "_Chain":
        await self._producer.start()
        await self._consumer.start()
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reader:
            self._reader.cancel()
        await self._consumer.stop()
        await self._producer.stop()

    async def warm_up(self) -> None:
        """Until a record has come through: the relays have joined their groups."""
        async with asyncio.timeout(READY_TIMEOUT_S):
            await asyncio.gather(*(self.call(-1 - number) for number in range(PARTITIONS)))

    async def call(self, number: int) -> bool:
        key = str(number).encode()
        self._waiting[key] = asyncio.get_running_loop().create_future()
        await self._producer.send(self._first, b"x" * RECORD_BYTES, key)
        await self._waiting[key]
        return True

    async def _read(self) -> None:
        while True:
            for records in (await self._consumer.getmany(timeout_ms=100, max_records=500)).values():
                for record in records:
                    if (waiting := self._waiting.pop(record.key, None)) is not None:
                        waiting.set_result(None)


@asynccontextmanager
async def _topics(bootstrap: str, name: str) -> AsyncIterator[None]:
    names = [topic(name, hop) for hop in range(HOPS)]
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(each, PARTITIONS, 1) for each in names])
        yield
    finally:
        await admin.delete_topics(names)
        await admin.close()


@asynccontextmanager
async def _relays(bootstrap: str, name: str) -> AsyncIterator[None]:
    """Hops dealt to the processes in turn, so that every one of them is between two processes, as in a plane."""
    shares = [range(first, HOPS - 1, PROCESSES) for first in range(PROCESSES)]
    argv = [sys.executable, "-m", "loadtest.relay", bootstrap, name]
    relays = [await asyncio.create_subprocess_exec(*argv, ",".join(map(str, share))) for share in shares]
    try:
        yield
    finally:
        for process in relays:
            process.terminate()
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await asyncio.gather(*(process.wait() for process in relays))
