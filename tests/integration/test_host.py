"""A real host process on the real broker, keeping real processes."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway.plane.ports import free_ports
from schemas.config import Bundle
from schemas.fleet import HostStatus, Kept, Placement, ServiceStatus
from schemas.topics import CONFIG, FLEET, LOOP_TOPICS
from services.chassis.clock import LogClock
from services.chassis.config.topic import ConfigHistory
from services.chassis.fleet import FleetPublisher, FleetView
from services.chassis.kafka.admin import Admin
from services.chassis.kafka.aiokafka_adapter import AioKafkaConsumer, AioKafkaProducer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.types import ConsumerSettings
from services.chassis.settings import environment

pytestmark = pytest.mark.kafka

HOST = Path(__file__).with_name("host_under_test.py")
ROOT = Path(__file__).parents[2]
DEADLINE_S = 90.0


class Machine:
    """A host process, and what can be seen of it from outside."""

    def __init__(self, connection: Connection, home: Path) -> None:
        (self.port,) = free_ports(1)
        self._connection = connection
        self._log = home / "host.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(HOST)],
                stdout=log,
                stderr=log,
                env=environment(
                    PYTHONPATH=str(ROOT),
                    HEADWAY_HOME=str(home),
                    HEADWAY_KAFKA_BOOTSTRAP_SERVERS=connection.bootstrap_servers,
                    HEADWAY_KAFKA_TOPIC_PREFIX=connection.topic_prefix,
                    HEADWAY_HOST_METRICS_PORT=str(self.port),
                    HEADWAY_HOST_MODEL_CLASSES="llm,embedding",
                    HEADWAY_HOST_PATIENCE_S="0",
                ),
            )

    async def apply(self, slots: int = 4, **replicas: int) -> int:
        """Makes a configuration with these replicas current, and a class this host may not run; its revision."""
        classes = {name: _model_class(count, slots) for name, count in {**replicas, "other": 1}.items()}
        producer = AioKafkaProducer(self._connection)
        await producer.start()
        try:
            async with read(self._connection, CONFIG) as log:
                return await ConfigHistory(log, producer).publish(Bundle.model_validate({"model_classes": classes}))
        finally:
            await producer.stop()

    def workers(self) -> dict[int, str]:
        """Its worker processes as the operating system has them: class by process id."""
        found: dict[int, str] = {}
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                words = " ".join(child.cmdline()).split()
                if child.status() != psutil.STATUS_ZOMBIE and "worker" in words:
                    found[child.pid] = words[-1]
        return found

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body from its side door; 0: no answer."""
        with suppress(OSError, IndexError):
            stream, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
                head, _, body = (await stream.read()).decode().partition("\r\n\r\n")
                return int(head.split()[1]), body
            finally:
                writer.close()
        return 0, ""

    async def until(self, condition: Callable[[dict[int, str]], bool]) -> dict[int, str]:
        """Waits until it is ready with workers such as these."""

        async def reached() -> bool:
            assert self.process.poll() is None, self._log.read_text()
            return (await self.get("/readyz"))[0] == 200 and condition(self.workers())

        await until(reached)
        return self.workers()


def _model_class(replicas: int, slots: int) -> dict[str, Any]:
    backends = [{"name": "local", "engine": {"kind": "simulated"}}]
    return {"backends": backends, "slots": slots, "scaling": {"min_replicas": replicas}}


def runs(*classes: str) -> Callable[[dict[int, str]], bool]:
    return lambda workers: sorted(workers.values()) == sorted(classes)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await condition():  # noqa: ASYNC110  another process has no event to wait for
            await asyncio.sleep(0.05)


async def until_gone(pids: Iterable[int]) -> None:
    async def gone() -> bool:
        return not any(_is_alive(pid) for pid in pids)

    await until(gone)


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@asynccontextmanager
async def read(connection: Connection, topic: str) -> AsyncIterator[LogReader]:
    settings = ConsumerSettings(group=None, topics=(topic,))
    reader = LogReader(lambda listener: AioKafkaConsumer(connection, settings, listener))
    await reader.start()
    try:
        yield reader
    finally:
        await reader.stop()


@pytest.fixture
async def host(connection: Connection, tmp_path: Path) -> AsyncIterator[Machine]:
    topics = [topic for topic in LOOP_TOPICS if topic.name in (CONFIG, FLEET)]
    async with Admin(connection) as admin:
        await admin.reconcile(topics, replication_factor=1)
    machine = Machine(connection, tmp_path)
    yield machine
    machine.process.kill()
    machine.process.wait(timeout=10)


async def test_it_keeps_what_the_configuration_says_through_changes_and_kills(host: Machine, tmp_path: Path) -> None:
    await host.apply(llm=2, embedding=1)
    first = await host.until(runs("llm", "llm", "embedding"))
    assert sorted(log.name for log in (tmp_path / "logs").iterdir()) == [
        "worker-embedding-0.log",
        "worker-llm-0.log",
        "worker-llm-1.log",
    ]

    killed = next(iter(first))
    psutil.Process(killed).kill()
    second = await host.until(lambda workers: killed not in workers and len(workers) == 3)

    await host.apply(llm=1, embedding=1)
    third = await host.until(runs("llm", "embedding"))
    assert set(third) < set(second), "what was not changed was restarted"

    await host.apply(slots=9, llm=1, embedding=1)
    fourth = await host.until(lambda workers: len(workers) == 2 and not set(workers) & set(third))
    assert sorted(fourth.values()) == ["embedding", "llm"]


class Fleet:
    """What is said on the fleet topic, and a leader that tells the one host there what to run."""

    def __init__(self, log: LogReader, producer: AioKafkaProducer) -> None:
        self._log = log
        self._producer = producer
        self._view = FleetView(LogClock())

    async def place(self, epoch: int, **queues: Kept) -> None:
        host = await self.until(lambda _: True)
        placement = Placement(instance=f"autoscaler-{epoch}", host=host.instance, epoch=epoch, queues=queues)
        await FleetPublisher(self._producer, LogClock(), lambda: [placement]).publish()

    async def until(self, condition: Callable[[HostStatus], bool]) -> HostStatus:
        """Waits for a host that says such a thing."""

        async def said() -> bool:
            self._view.add(await self._log.follow(0.1))
            return any(map(condition, self._view.of(HostStatus)))

        await until(said)
        return self._view.of(HostStatus)[-1]


@pytest.fixture
async def fleet(host: Machine, connection: Connection) -> AsyncIterator[Fleet]:
    producer = AioKafkaProducer(connection)
    await producer.start()
    async with read(connection, FLEET) as log:
        yield Fleet(log, producer)
    await producer.stop()


async def test_it_obeys_the_newest_leader_and_nobody_else(host: Machine, fleet: Fleet) -> None:
    await host.apply(llm=2)
    first = await host.until(runs("llm", "llm"))
    await fleet.place(5, llm=Kept(warm=1, asleep=1))
    told = await fleet.until(lambda status: status.ready == {"llm": 1})
    assert told.workers == {"llm": 2}
    assert told.capacity is not None
    assert told.capacity.cpu > 0
    assert told.capacity.memory > 1 << 20
    await fleet.place(4)
    await fleet.place(5, llm=Kept(warm=1), lm=Kept(warm=3))
    await fleet.until(lambda status: status.workers == {"llm": 1})
    assert set(host.workers()) < set(first), "the earlier leader was obeyed for a moment"


async def test_it_is_given_back_when_it_is_told_to_keep_nothing(host: Machine, fleet: Fleet) -> None:
    await host.apply(llm=1)
    workers = await host.until(runs("llm"))
    host.process.send_signal(signal.SIGUSR1)
    await fleet.until(lambda status: status.leaving)
    assert _is_alive(next(iter(workers)))
    await fleet.place(1)
    assert await asyncio.to_thread(host.process.wait, 15) == 0
    await until_gone(workers)


async def test_its_side_door_speaks_for_all_its_workers(host: Machine) -> None:
    await host.apply(llm=2)
    await host.until(runs("llm", "llm"))
    status, page = await host.get("/metrics")
    assert status == 200
    for name in ("llm-0", "llm-1"):
        assert f'headway_slots{{backend="local",model_class="llm",worker="{name}"}} 4.0' in page


async def test_it_tells_the_fleet_its_revision_and_its_workers(host: Machine, connection: Connection) -> None:
    revision = await host.apply(llm=1)
    await host.until(runs("llm"))
    view = FleetView(LogClock())
    async with read(connection, FLEET) as log:

        async def told() -> bool:
            view.add(await log.follow(0.5))
            revisions = [status.revision for status in view.of(ServiceStatus)]
            return revisions == [revision] and [s.workers for s in view.of(HostStatus)] == [{"llm": 1}]

        await until(told)


async def test_it_is_not_ready_before_there_is_a_configuration(host: Machine) -> None:
    async def answered() -> bool:
        return (await host.get("/readyz"))[1] == "workers: no configuration yet\n"

    await until(answered)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_no_worker_outlives_it(host: Machine, number: signal.Signals) -> None:
    await host.apply(llm=2)
    workers = await host.until(runs("llm", "llm"))
    began = time.monotonic()
    host.process.send_signal(number)
    code = await asyncio.to_thread(host.process.wait, 15)
    assert code == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    await until_gone(workers)
    assert time.monotonic() - began < 15
