"""A real autoscaler process on a broker of its own: its lag is the broker's, and gone while that is away."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest

from headway.plane.kafka import EmbeddedKafka
from headway.plane.ports import free_ports
from schemas.config import Bundle
from schemas.fleet import FLEET as FLEET_STATUS
from schemas.fleet import AutoscalerStarted, Capacity, FleetMessage, FleetStatus, HostStatus, Kept, Placement
from schemas.topics import CONFIG, FLEET, all_topics
from services.autoscaler.keda.externalscaler_pb2 import IsActiveResponse, ScaledObjectRef
from services.chassis.config.topic import ConfigHistory
from services.chassis.fleet import status_record
from services.chassis.kafka.admin import Admin
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.types import Commit, ConsumerSettings, Outgoing, TopicPartition
from services.chassis.settings import environment
from tests.contract.kafka.conftest import Journal

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("servers")]

DEADLINE_S = 30.0
SHOWN_S = 5.0
"""So soon a lag is to be seen."""
RECOVERED_S = 15.0
"""From the death of a leader until its successor's first placement."""
ENGINE = {"backends": [{"name": "local", "engine": {"kind": "simulated"}}]}

Samples = dict[str, float]


@dataclass
class Running:
    """One autoscaler process."""

    process: subprocess.Popen[bytes]
    port: int
    keda_port: int
    log: Path


class Plane:
    """A broker, the topics of two model classes, and an autoscaler that looks at them. There are no workers."""

    def __init__(self, kafka: EmbeddedKafka, home: Path) -> None:
        self.kafka = kafka
        self.connection = Connection(kafka.bootstrap, client_id="test")
        self._home = home
        self.running: list[Running] = []

    async def start(self) -> None:
        await self.configure("llm")
        self.spawn()
        await self.until(lambda found: lane("headway_lag_tasks", "llm", "batch") in found)

    def spawn(self) -> Running:
        port, keda_port = free_ports(2)
        file = self._home / f"autoscaler-{len(self.running)}.log"
        with file.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "headway", "serve", "autoscaler"],
                stdout=log,
                stderr=log,
                env=environment(
                    HEADWAY_HOME=str(self._home),
                    HEADWAY_KAFKA_BOOTSTRAP_SERVERS=self.kafka.bootstrap,
                    HEADWAY_AUTOSCALER_METRICS_PORT=str(port),
                    HEADWAY_AUTOSCALER_KEDA_PORT=str(keda_port),
                ),
            )
        self.running.append(Running(process, port, keda_port, file))
        return self.running[-1]

    @property
    def log(self) -> Path:
        """Of the autoscaler that is asked."""
        return self.running[0].log

    def stop(self) -> list[int]:
        for each in self.running:
            each.process.terminate()
        return [each.process.wait(10) for each in self.running]

    @asynccontextmanager
    async def saying(self, *statuses: FleetMessage) -> AsyncIterator[None]:
        """Says something again and again."""

        async def say() -> None:
            while True:
                await producer.send_all([status_record(status) for status in statuses])
                await asyncio.sleep(1.0)

        producer = AioKafkaProducer(self.connection)
        await producer.start()
        saying = asyncio.create_task(say())
        try:
            yield
        finally:
            saying.cancel()
            await asyncio.wait({saying})
            await producer.stop()

    @asynccontextmanager
    async def fleet(self) -> AsyncIterator["Heard"]:
        settings = ConsumerSettings(group=None, topics=(FLEET,))
        reader = LogReader(lambda listener: AioKafkaConsumer(self.connection, settings, listener))
        await reader.start()
        try:
            yield Heard(reader)
        finally:
            await reader.stop()

    async def configure(self, *model_classes: str) -> None:
        """Makes the topics of these classes, then the configuration that names them."""
        bundle = Bundle.model_validate({"model_classes": dict.fromkeys(model_classes, ENGINE)})
        async with Admin(self.connection) as admin:
            await admin.reconcile(all_topics(bundle.model_classes, bundle.tenants), replication_factor=1)
        settings = ConsumerSettings(group=None, topics=(CONFIG,))
        log = LogReader(lambda listener: AioKafkaConsumer(self.connection, settings, listener))
        await log.start()
        producer = AioKafkaProducer(self.connection)
        await producer.start()
        try:
            await ConfigHistory(log, producer).publish(bundle)
        finally:
            await producer.stop()
            await log.stop()

    async def publish(self, model_class: str, partition: int, tasks: int) -> None:
        topic = f"inference-tasks-{model_class}"
        producer = AioKafkaProducer(self.connection)
        await producer.start()
        await producer.send_all([Outgoing(topic, b"{}", partition=partition) for _ in range(tasks)])
        await producer.stop()

    async def commit(self, model_class: str, partition: int, offset: int) -> None:
        settings = ConsumerSettings(f"headway-worker-{model_class}", (f"inference-tasks-{model_class}",))
        consumer = AioKafkaConsumer(self.connection, settings, Journal())
        await consumer.start()
        async with asyncio.timeout(DEADLINE_S):
            while not consumer.assignment():
                await consumer.poll((), max_records=1, timeout_s=0.05)
        assert await consumer.commit({TopicPartition(settings.topics[0], partition): Commit(offset)})
        await consumer.stop()

    async def samples(self) -> Samples:
        """What `/metrics` says; nothing while nobody answers."""
        body = ""
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.running[0].port)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            body = (await reader.read()).decode().partition("\r\n\r\n")[2]
            writer.close()
        return {name: float(value) for name, value in re.findall(r"^((?:headway|kafka)\S+) (\S+)$", body, re.M)}

    async def until(self, condition: Callable[[Samples], bool], within_s: float = DEADLINE_S) -> Samples:
        async with asyncio.timeout(within_s):
            while not condition(found := await self.samples()):
                assert self.running[0].process.poll() is None, self.log.read_text()
                await asyncio.sleep(0.1)
        return found


class Heard:
    """The fleet topic from its beginning, each status with its offset."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._all: list[tuple[int, FleetStatus]] = []

    async def first(self, holds: Callable[[int, FleetStatus], bool], within_s: float) -> tuple[int, FleetStatus]:
        async with asyncio.timeout(within_s):
            while True:
                for offset, status in self._all:
                    if holds(offset, status):
                        return offset, status
                for record in await self._reader.follow(0.2):
                    self._all.append((record.offset, FLEET_STATUS.validate_json(record.value or b"")))

    async def newest(self) -> tuple[int, FleetStatus]:
        """The last reign that began."""
        for record in await self._reader.read_to_end():
            self._all.append((record.offset, FLEET_STATUS.validate_json(record.value or b"")))
        return next(found for found in reversed(self._all) if isinstance(found[1], AutoscalerStarted))


def lane(metric: str, model_class: str, name: str) -> str:
    return f'{metric}{{backend="local",lane="{name}",model_class="{model_class}"}}'


@pytest.fixture(scope="module")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Plane]:
    home = tmp_path_factory.mktemp("autoscaler")
    kafka = EmbeddedKafka(home / "kafka", free_ports(1)[0])
    await kafka.start(lambda _: None)
    found = Plane(kafka, home)
    try:
        await found.start()
        yield found
        assert set(found.stop()) == {0}, found.log.read_text()
    finally:
        await kafka.stop()


async def test_what_is_published_and_not_committed_is_the_lag(plane: Plane) -> None:
    await plane.publish("llm", 0, 20)
    await plane.publish("llm", 3, 5)
    interactive = lane("headway_lag_tasks", "llm", "interactive")
    found = await plane.until(lambda found: found.get(interactive) == 25, SHOWN_S)
    assert found[lane("headway_lag_tasks", "llm", "standard")] == 0
    await plane.commit("llm", 0, 18)
    found = await plane.until(lambda found: found.get(interactive) == 7, SHOWN_S)
    labels = 'consumergroup="headway-worker-llm",partition="0",topic="inference-tasks-llm"'
    assert found[f"kafka_consumergroup_lag{{{labels}}}"] == 2
    assert found[f"kafka_consumergroup_current_offset{{{labels}}}"] == 18


async def test_the_lag_of_a_stalled_consumer_grows_with_the_clock(plane: Plane) -> None:
    batch = lane("headway_lag_seconds", "llm", "batch")
    began = time.monotonic()
    await plane.publish("llm", 9, 1)
    first = (await plane.until(lambda found: found.get(batch, 0) > 1))[batch]
    later = (await plane.until(lambda found: found.get(batch, 0) > first + 1.5))[batch]
    assert later < time.monotonic() - began + 1, "no task is older than it can be"


async def test_workers_that_nobody_speaks_of_are_none(plane: Plane) -> None:
    warm = 'headway_replicas{backend="local",model_class="llm",state="warm"}'
    assert (await plane.until(lambda found: warm in found))[warm] == 0


async def test_a_class_that_is_configured_later_is_told(plane: Plane) -> None:
    await plane.configure("llm", "later")
    await plane.publish("later", 4, 3)
    await plane.until(lambda found: found.get(lane("headway_lag_tasks", "later", "standard")) == 3)


async def test_keda_is_told_what_the_leader_has_decided(plane: Plane) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{plane.running[0].keda_port}") as channel:
        pushes = channel.unary_stream(
            "/externalscaler.ExternalScaler/StreamIsActive",
            ScaledObjectRef.SerializeToString,
            IsActiveResponse.FromString,
        )
        stream = pushes(ScaledObjectRef(scalerMetadata={"queue": "llm"}), timeout=DEADLINE_S, wait_for_ready=True)
        assert await stream.read() == IsActiveResponse(result=True), "one worker of it is always to be there"


async def test_with_the_broker_away_there_is_no_lag_and_then_there_is_the_same(plane: Plane) -> None:
    batch = lane("headway_lag_tasks", "llm", "batch")
    before = (await plane.until(lambda found: batch in found))[batch]
    os.kill(plane.kafka.pid, signal.SIGSTOP)
    try:
        await plane.until(lambda found: not any("lag" in name or "offset" in name for name in found), 10.0)
    finally:
        os.kill(plane.kafka.pid, signal.SIGCONT)
    assert (await plane.until(lambda found: batch in found))[batch] == before


async def test_a_leader_that_is_killed_is_followed_by_one_with_a_higher_epoch_and_the_same_order(
    plane: Plane,
) -> None:
    machine = HostStatus(instance="machine", workers={}, capacity=Capacity(cpu=4, memory=8 << 30))

    def placed(status: FleetStatus, *, but_by: str = "") -> bool:
        return isinstance(status, Placement) and status.host == "machine" and status.instance != but_by

    async with plane.saying(machine), plane.fleet() as heard:
        await heard.first(lambda _, status: placed(status), DEADLINE_S)
        second = plane.spawn()
        await plane.until(lambda _: b"autoscaler_" in second.log.read_bytes())
        epoch, began = await heard.newest()
        assert isinstance(began, AutoscalerStarted)
        (leader,) = (each for each in plane.running if began.instance in each.log.read_text())
        plane.running.remove(leader)
        leader.process.kill()
        leader.process.wait()
        _, order = await heard.first(
            lambda offset, status: offset > epoch and placed(status, but_by=began.instance), RECOVERED_S
        )
    assert isinstance(order, Placement)
    assert order.epoch > epoch
    assert order.queues["llm"] == Kept(warm=1)
