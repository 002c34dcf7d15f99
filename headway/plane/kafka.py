"""A real Apache Kafka (KRaft, one node) as a child process, from jars and a Java runtime that packages carry."""

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from headway.plane import jars
from headway.plane.errors import PlaneError
from headway.plane.jars import KAFKA_VERSION, cache_folder, cached_classpath
from headway.plane.java import Java, find_java
from headway.plane.ports import HOST, free_ports, require_free
from headway.plane.probes import kafka_answers
from headway.plane.process import Server, run_once
from headway.plane.reaper import Reaper

RESOLVE_TIMEOUT_S = 600.0
FORMAT_TIMEOUT_S = 60.0
READY_TIMEOUT_S = 60.0
RECORD_GRACE_S = 60.0

# Relative to the broker's folder, in which it runs: a path may hold a comma, which separates log folders.
DATA = "data"
UNFINISHED = "data.unfinished"

LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
logger.settings.name = org.apache.kafka.common.config.AbstractConfig
logger.settings.level = warn
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


class EmbeddedKafka(Server):
    """One broker, its own controller, on 127.0.0.1; topics and data stay in `folder` over restarts.

    It survives the kill of any process but not a power loss: nothing is fsynced before an acknowledgement.
    """

    def __init__(self, folder: Path, port: int, log: Path | None = None, reaper: Reaper | None = None) -> None:
        super().__init__("kafka", log or folder / "kafka.log", reaper)
        self._folder = folder
        self._port = port

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._port}"

    async def start(self, on_progress: Callable[[str], None]) -> None:
        """Returns when the broker serves requests.

        The very first start on a machine downloads Kafka's jars and runs a broker once to cache its classes; later
        ones touch no network.
        """
        require_free(self._port)
        self._folder.mkdir(parents=True, exist_ok=True)  # everything runs in it, the download of the jars first
        java = find_java()
        classpath = await self._classpath(on_progress)
        flags = await self._class_cache_flags(java, classpath, on_progress)
        await self._prepare_folder(java, classpath, flags, on_progress)
        on_progress(f"starting on port {self._port}")
        await self._serve(java, classpath, flags)

    async def _serve(self, java: Java, classpath: str, flags: list[str]) -> None:
        argv = java.command(classpath, *flags, "kafka.Kafka", "server.properties")
        await self._spawn(argv, os.environ, lambda: kafka_answers(self._port), READY_TIMEOUT_S, folder=self._folder)

    async def _class_cache_flags(self, java: Java, classpath: str, on_progress: Callable[[str], None]) -> list[str]:
        cache = java.class_cache(cache_folder())
        if cache and not cache.exists():
            on_progress("preparing Kafka for quick starts, once")
            with contextlib.suppress(PlaneError, BlockingIOError):  # without the cache it only starts slower
                await self._record_classes(java, classpath, cache)
        return [f"-XX:AOTCache={cache}"] if cache and cache.exists() else []

    async def _record_classes(self, java: Java, classpath: str, cache: Path) -> None:
        """Runs a broker on a scratch folder; the runtime writes the cache of its classes as it ends."""
        with (
            _only_one(cache.with_suffix(".lock")),
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch,
        ):
            partial = cache.with_suffix(".partial")
            broker = EmbeddedKafka(Path(scratch), free_ports(1)[0], self.log, self._reaper)
            await broker._prepare_folder(java, classpath, [], lambda _: None)
            await broker._serve(java, classpath, [f"-XX:AOTCacheOutput={partial}"])
            await broker.stop(RECORD_GRACE_S)
            # Where the runtime wrote none, an empty one (which it ignores) keeps every start from trying again.
            partial.touch()
            partial.replace(cache)

    async def _classpath(self, on_progress: Callable[[str], None]) -> str:
        folder = cache_folder()
        if (classpath := cached_classpath(folder)) is not None:
            return classpath
        on_progress(f"downloading Apache Kafka {KAFKA_VERSION}, once (44 MB)")
        try:
            # By its path (-P: its folder stays off sys.path), so that it runs wherever this package came from.
            await self._run([sys.executable, "-P", jars.__file__, str(folder)], RESOLVE_TIMEOUT_S)
        except PlaneError as error:
            raise PlaneError(
                f"Kafka's jars could not be downloaded: check the connection to Maven Central and try again; {error}"
            ) from None
        classpath = cached_classpath(folder)
        assert classpath is not None, f"{folder} was filled"
        return classpath

    async def _prepare_folder(
        self, java: Java, classpath: str, flags: list[str], on_progress: Callable[[str], None]
    ) -> None:
        self._write_settings()
        if not (self._folder / DATA).exists():
            on_progress("formatting the storage")
            await self._format(java, classpath, flags)

    def _write_settings(self) -> None:
        settings = broker_settings(self._port, controller_port=free_ports(1)[0])
        files = {
            "log4j2.properties": LOG4J,
            "server.properties": _properties(settings),
            "format.properties": _properties({**settings, "log.dirs": UNFINISHED}),
        }
        for name, text in files.items():
            (self._folder / name).write_text(text, encoding="utf-8")

    async def _format(self, java: Java, classpath: str, flags: list[str]) -> None:
        """Formats beside the data folder and moves it in place: a start that is killed halfway leaves nothing."""
        unfinished = self._folder / UNFINISHED
        shutil.rmtree(unfinished, ignore_errors=True)
        # With "=": an id may begin with a dash.
        cluster_id = f"--cluster-id={urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip('=')}"
        tool = ("kafka.tools.StorageTool", "format", cluster_id, "--config", "format.properties")
        await self._run(java.command(classpath, *flags, *tool), FORMAT_TIMEOUT_S)
        unfinished.rename(self._folder / DATA)

    async def _run(self, argv: list[str], timeout_s: float) -> None:
        await run_once(argv, os.environ, self.log, timeout_s=timeout_s, reaper=self._reaper, folder=self._folder)


def broker_settings(port: int, controller_port: int) -> dict[str, str]:
    """The broker's settings: one node, small memory, little work while idle. It runs in its own folder."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": DATA,
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
        # After a kill -9 the broker may register again only when its old session has ended (9 s by default).
        "broker.session.timeout.ms": "5000",
        "broker.heartbeat.interval.ms": "1000",
    }


@contextlib.contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """Raises BlockingIOError while another process is inside."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _properties(settings: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())
