"""The real Kafka and the real Valkey of the plane: start, stop, restart, kill."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from redis.asyncio import Redis

from headway.plane.errors import PlaneError
from headway.plane.jars import cache_folder, cached_classpath, fill
from headway.plane.kafka import EmbeddedKafka
from headway.plane.ports import free_ports
from headway.plane.valkey import EmbeddedValkey

pytestmark = pytest.mark.kafka


def quiet(_: str) -> None:
    """Progress that nobody watches."""


async def write(bootstrap: str, value: bytes) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
    await producer.start()
    try:
        await producer.send_and_wait("kept", value, partition=0)
    finally:
        await producer.stop()


async def read(bootstrap: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition("kept", 0)])
    await consumer.start()
    try:
        async with asyncio.timeout(20):
            return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


async def cluster_id(bootstrap: str) -> str:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        return str((await admin.describe_cluster())["cluster_id"])
    finally:
        await admin.close()


async def create_topic(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic("kept", 1, 1)])
        assert [code for _, code, _ in answer.topic_errors] == [0]
    finally:
        await admin.close()


async def test_kafka_keeps_its_cluster_and_data_over_a_stop_and_a_kill(tmp_path: Path) -> None:
    # A comma would separate two log folders; the second start has another port.
    folder = tmp_path / "a home, with a comma"
    progress: list[str] = []

    kafka = EmbeddedKafka(folder, free_ports(1)[0])
    await kafka.start(progress.append)
    assert "formatting the storage" in progress
    identity = await cluster_id(kafka.bootstrap)
    await create_topic(kafka.bootstrap)
    await write(kafka.bootstrap, b"before a stop")
    started = time.monotonic()
    await kafka.stop()
    assert time.monotonic() - started < 5
    assert not is_listening(kafka.bootstrap)

    progress.clear()
    kafka = EmbeddedKafka(folder, free_ports(1)[0])
    await kafka.start(progress.append)
    assert "formatting the storage" not in progress
    await write(kafka.bootstrap, b"before a kill")
    os.kill(kafka.pid, signal.SIGKILL)
    assert await kafka.wait() == -signal.SIGKILL

    await kafka.start(quiet)
    try:
        assert await cluster_id(kafka.bootstrap) == identity
        assert await read(kafka.bootstrap, 2) == [b"before a stop", b"before a kill"]
    finally:
        await kafka.stop()


@pytest.mark.parametrize("server", [EmbeddedKafka, EmbeddedValkey])
async def test_a_taken_port_is_refused(server: type[EmbeddedKafka | EmbeddedValkey], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PlaneError, match=f"port {port} on 127.0.0.1 is taken: .* --ports auto"):
            await server(tmp_path, port).start(quiet)


async def test_a_broker_that_fails_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()  # was never formatted
    with pytest.raises(PlaneError, match=r"(?s)kafka did not start: it ended with exit code 1; .*meta\.properties"):
        await EmbeddedKafka(tmp_path, free_ports(1)[0]).start(quiet)


async def test_an_unreachable_repository_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    kafka = EmbeddedKafka(tmp_path / "home" / "kafka", free_ports(1)[0], tmp_path / "logs" / "kafka.log")
    with pytest.raises(
        PlaneError, match="jars could not be downloaded: check the connection to Maven Central"
    ) as raised:
        await kafka.start(quiet)
    assert "Traceback" not in str(raised.value)


def test_a_resolved_class_path_is_kafkas_own() -> None:
    fill(cache_folder())
    jars = (cached_classpath(cache_folder()) or "").split(os.pathsep)
    names = {Path(jar).name for jar in jars}
    assert {"kafka_2.13-4.3.1.jar", "kafka-clients-4.3.1.jar", "log4j-slf4j-impl-2.25.4.jar"} <= names


@pytest.fixture
async def valkey(tmp_path: Path) -> AsyncIterator[EmbeddedValkey]:
    server = EmbeddedValkey(tmp_path, free_ports(1)[0])
    await server.start(quiet)
    yield server
    await server.stop()


async def test_valkey_serves_and_starts_again_on_its_port(valkey: EmbeddedValkey) -> None:
    async with Redis.from_url(valkey.url) as client:
        assert await client.set("a", "b")
        os.kill(valkey.pid, signal.SIGKILL)
        assert await valkey.wait() == -signal.SIGKILL
    await valkey.start(quiet)
    async with Redis.from_url(valkey.url) as client:
        assert await client.get("a") is None


async def test_valkey_writes_nothing_to_disk(valkey: EmbeddedValkey, tmp_path: Path) -> None:
    async with Redis.from_url(valkey.url) as client:
        await client.set("a", "b")
    await valkey.stop()
    assert os.listdir(tmp_path) == ["valkey.log"]


def is_listening(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
