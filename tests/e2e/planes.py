"""A whole plane for tests: every part a real process, its home and ports its own."""

import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import ConsumerRecord, TopicPartition

from headway.cli.embedded import EmbeddedPlane
from headway.plane.endpoints import Endpoints

CONFIG = Path(__file__).parent / "config"


@asynccontextmanager
async def running_plane(config: Path = CONFIG) -> AsyncIterator["RunningPlane"]:
    """A plane that is up and ready; stopped at the end, whatever happened."""
    with TemporaryDirectory(prefix="headway-e2e-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        plane = EmbeddedPlane(home, config, _ignore, ports="auto")
        endpoints = await plane.start()
        try:
            yield RunningPlane(home, endpoints)
        finally:
            await plane.stop()


def _ignore(*_: object) -> None:
    """Progress is not of interest here."""


class RunningPlane:
    """What tests do to a plane, and see of it, from outside."""

    def __init__(self, home: Path, endpoints: Endpoints) -> None:
        self.home = home
        self.endpoints = endpoints

    def kill(self, part: str) -> None:
        """SIGKILL to the process that runs a part now."""
        pids = Endpoints.model_validate_json((self.home / "endpoints.json").read_bytes()).pids
        os.kill(pids[part], signal.SIGKILL)

    def worker_pids(self) -> list[int]:
        """The processes that the host runs, all forked by a child of it."""
        parents = _parents()
        return [pid for pid, parent in parents.items() if parents.get(parent) == self.endpoints.pids["host"]]

    async def publish(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: list[tuple[str, bytes]] | None = None,
        topic: str = "inference-requests",
        compression: str | None = None,
    ) -> int:
        """One raw record, as any Kafka client could send it; its log time in milliseconds."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self.endpoints.kafka, compression_type=compression, max_request_size=8 << 20
        )
        await producer.start()
        try:
            appended = await producer.send_and_wait(topic, value, key, headers=headers or [])
        finally:
            await producer.stop()
        return int(appended.timestamp)

    async def read(
        self, topic: str, until: Callable[[list[ConsumerRecord]], bool], timeout_s: float = 30.0
    ) -> list[ConsumerRecord]:
        """Every record of a topic, read until the condition holds; fails with what there was when it does not."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self.endpoints.kafka, auto_offset_reset="earliest")
        consumer.subscribe([topic])
        await consumer.start()
        found: list[ConsumerRecord] = []
        deadline = time.monotonic() + timeout_s
        try:
            while not until(found):
                assert time.monotonic() < deadline, f"not within {timeout_s} s; {len(found)} records of {topic}"
                batches: dict[TopicPartition, list[ConsumerRecord]] = await consumer.getmany(timeout_ms=100)
                found.extend(record for batch in batches.values() for record in batch)
        finally:
            await consumer.stop()
        return found

    async def responses(self, *request_ids: str, timeout_s: float = 30.0) -> dict[str, dict[str, Any]]:
        """The response of each request; fails when one has two that differ."""

        def complete(records: list[ConsumerRecord]) -> bool:
            return set(request_ids) <= {record.key.decode() for record in records}

        found: dict[str, bytes] = {}
        for record in await self.read("inference-responses", complete, timeout_s):
            request_id = record.key.decode()
            assert found.setdefault(request_id, record.value) == record.value, f"two responses of {request_id}"
        return {request_id: json.loads(found[request_id]) for request_id in request_ids}


def _parents() -> dict[int, int]:
    """Parent by process id, of everything that runs."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
