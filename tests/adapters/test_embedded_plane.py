"""The supervisor on a real Kafka and Valkey, with tiny services in place of Headway's own."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from headway.plane.endpoints import load_endpoints
from headway.plane.errors import PlaneError
from headway.plane.ports import choose_ports, free_ports
from headway.plane.service import ServiceSpec, SetupSpec
from headway.plane.supervisor import Plane

pytestmark = pytest.mark.kafka  # not `plane`: its services do nothing, so that several may run at once

DEADLINE_S = 30.0

# Answers /readyz, has a child of its own (as the host has workers), and notes how it was told to stop.
SERVICE = """
import http.server, os, pathlib, signal, subprocess, sys

class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()
    def log_message(self, *_):
        pass

def drained(*_):
    home = pathlib.Path(os.environ["HEADWAY_HOME"])
    with (home / "drained").open("a") as file:
        file.write(NAME + " ")
    os._exit(0)

NAME, how = sys.argv[1:]
if how == "broken":
    sys.exit("the model class is unknown")
signal.signal(signal.SIGTERM, signal.SIG_IGN if how == "stubborn" else drained)
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("worker", worker.pid, flush=True)
print(os.environ["HEADWAY_KAFKA_BOOTSTRAP_SERVERS"], os.environ["HEADWAY_REDIS_URL"], flush=True)
port = int(os.environ[f"HEADWAY_{NAME.upper()}_METRICS_PORT"])
http.server.HTTPServer(("127.0.0.1", port), Ready).serve_forever()
"""


class Watcher:
    """Keeps what a plane reported."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []

    def __call__(self, part: str, state: str, detail: str) -> None:
        self.seen.append((part, state, detail))

    def states(self, part: str) -> list[str]:
        return [state for name, state, _ in self.seen if name == part]


def make_plane(home: Path, watcher: Watcher | None = None, setup: str = "", **services: str) -> Plane:
    ports = choose_ports("auto")
    specs = [
        ServiceSpec(name, (sys.executable, "-c", SERVICE, name, how), ports.metrics[name])
        for name, how in services.items()
    ]
    return Plane(home, ports, specs, SetupSpec((sys.executable, "-c", setup)), watcher or Watcher())


@asynccontextmanager
async def running(plane: Plane) -> AsyncIterator[Plane]:
    await plane.start()
    try:
        yield plane
    finally:
        await plane.stop()


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def worker_of(home: Path, service: str) -> int:
    log = (home / "logs" / f"{service}.log").read_text()
    return int(log.split("worker ")[-1].split()[0])


async def test_a_plane_starts_in_order_is_found_and_stops_in_reverse(tmp_path: Path) -> None:
    watcher = Watcher()
    setup = "import os; print('setup sees', os.environ['HEADWAY_KAFKA_BOOTSTRAP_SERVERS'])"
    plane = make_plane(tmp_path, watcher, setup, orchestrator="ok", host="ok")
    async with running(plane):
        endpoints = load_endpoints(tmp_path)
        assert endpoints == plane.endpoints
        assert endpoints.ready
        assert set(endpoints.pids) == {"plane", "kafka", "valkey", "orchestrator", "host"}
        assert all(map(is_running, endpoints.pids.values()))
        assert set(endpoints.metrics) == {"orchestrator", "host"}
        assert all(
            watcher.states(part)[-1] == "ready" for part in ("kafka", "valkey", "setup", "orchestrator", "host")
        )
        assert f"setup sees {endpoints.kafka}" in (tmp_path / "logs" / "setup.log").read_text()
        assert f"{endpoints.kafka} {endpoints.redis}" in (tmp_path / "logs" / "host.log").read_text()
        workers = [worker_of(tmp_path, service) for service in ("orchestrator", "host")]

        with pytest.raises(PlaneError, match=rf"already up in .* \(pid {os.getpid()}\)"):
            await make_plane(tmp_path).start()
        assert load_endpoints(tmp_path).ready, "a refused start leaves the running plane alone"
        started = time.monotonic()
    assert time.monotonic() - started < 10
    with pytest.raises(PlaneError, match="no plane is up"):
        load_endpoints(tmp_path)
    assert sorted((tmp_path / "drained").read_text().split()) == ["host", "orchestrator"]
    stopped = [part for part, state, _ in watcher.seen if state == "stopped"]
    assert set(stopped[:2]) == {"orchestrator", "host"}
    assert set(stopped[2:]) == {"kafka", "valkey"}
    await until(lambda: not any(map(is_running, [*workers, *set(endpoints.pids.values()) - {os.getpid()}])))


async def test_what_dies_is_started_again_and_said_so_and_kafka_loses_nothing(tmp_path: Path) -> None:
    watcher = Watcher()
    async with running(make_plane(tmp_path, watcher, host="ok")) as plane:
        await publish(plane.endpoints.kafka, b"kept")
        before = load_endpoints(tmp_path)
        orphan = worker_of(tmp_path, "host")
        for part in ("host", "valkey", "kafka"):
            os.kill(before.pids[part], signal.SIGKILL)
        await until(lambda: not load_endpoints(tmp_path).ready)
        await until(lambda: load_endpoints(tmp_path).ready)
        after = load_endpoints(tmp_path)
        assert not is_running(orphan)
        assert (after.redis, after.kafka) == (before.redis, before.kafka)
        for part in ("host", "valkey", "kafka"):
            assert after.pids[part] != before.pids[part]
            assert is_running(after.pids[part])
            assert watcher.states(part)[-3:] == ["restarting", "starting", "ready"]
        assert ("host", "restarting", "ended with SIGKILL, again in 0.5 s") in watcher.seen
        assert await first_record(plane.endpoints.kafka) == b"kept"


async def publish(bootstrap: str, value: bytes) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic("survivors", 1, 1)])
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        await producer.send_and_wait("survivors", value)


async def first_record(bootstrap: str) -> bytes | None:
    consumer = AIOKafkaConsumer("survivors", bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    async with consumer, asyncio.timeout(DEADLINE_S):
        value: bytes | None = (await consumer.getone()).value
        return value


async def test_a_second_instance_of_a_service_is_a_part_of_its_own(tmp_path: Path) -> None:
    ports = free_ports(2)
    specs = [
        ServiceSpec("host", (sys.executable, "-c", SERVICE, "host", "ok"), port, instance=number)
        for number, port in enumerate(ports, 1)
    ]
    plane = Plane(tmp_path, choose_ports("auto"), specs, None, Watcher())
    async with running(plane):
        assert plane.endpoints.pids["host"] != plane.endpoints.pids["host-2"]
        assert plane.endpoints.metrics == {
            "host": f"http://127.0.0.1:{ports[0]}/metrics",
            "host-2": f"http://127.0.0.1:{ports[1]}/metrics",
        }
        assert (tmp_path / "logs" / "host-2.log").exists()


async def test_a_kafka_that_will_not_live_stops_everything_with_the_tail_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.plane.supervisor.KAFKA_RESTARTS", 0)
    plane = make_plane(tmp_path, host="ok")
    endpoints = await plane.start()
    waiting = asyncio.create_task(plane.wait())
    os.kill(endpoints.pids["kafka"], signal.SIGKILL)
    with pytest.raises(
        PlaneError, match=r"(?s)kafka ended with SIGKILL; the end of .*kafka\.log:\n.*Kafka Server started"
    ):
        await asyncio.wait_for(waiting, DEADLINE_S)
    assert not any(is_running(pid) for part, pid in endpoints.pids.items() if part != "plane")


async def test_a_service_that_cannot_start_stops_everything_with_its_reason(tmp_path: Path) -> None:
    plane = make_plane(tmp_path, host="broken", orchestrator="ok")
    with pytest.raises(PlaneError, match=r"(?s)host did not start: .*exit code 1.*\nthe model class is unknown"):
        await plane.start()
    assert not any(is_running(pid) for part, pid in plane.endpoints.pids.items() if part != "plane")
    with pytest.raises(PlaneError, match="no plane is up"):
        load_endpoints(tmp_path)


async def test_a_failed_setup_stops_everything_and_a_later_plane_takes_the_home(tmp_path: Path) -> None:
    with pytest.raises(PlaneError, match=r"(?s)setup failed: .*\npipelines/ask\.yaml:3: unknown step"):
        await make_plane(tmp_path, setup="raise SystemExit('pipelines/ask.yaml:3: unknown step')", host="ok").start()
    async with running(make_plane(tmp_path, host="ok")):
        assert load_endpoints(tmp_path).ready


async def test_what_does_not_stop_is_killed_within_ten_seconds(tmp_path: Path) -> None:
    plane = make_plane(tmp_path, host="stubborn", orchestrator="ok")
    async with running(plane):
        pids = plane.endpoints.pids
        worker = worker_of(tmp_path, "host")
        started = time.monotonic()
    assert time.monotonic() - started < 10
    assert not any(is_running(pid) for part, pid in pids.items() if part != "plane")
    await until(lambda: not is_running(worker))


async def test_a_cancelled_start_leaves_nothing(tmp_path: Path) -> None:
    watcher = Watcher()
    plane = make_plane(tmp_path, watcher, setup="import time; time.sleep(600)", host="ok")
    starting = asyncio.create_task(plane.start())
    await until(lambda: "starting" in watcher.states("setup"))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not any(is_running(pid) for part, pid in plane.endpoints.pids.items() if part != "plane")
    assert not (tmp_path / "endpoints.json").exists()


SUPERVISOR = f"""
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_embedded_plane import make_plane

async def main(home: Path) -> None:
    plane = make_plane(home, host="stubborn", orchestrator="ok")
    await plane.start()
    await plane.wait()

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_nothing_survives_a_killed_supervisor_and_a_later_plane_takes_the_home(tmp_path: Path) -> None:
    supervisor = await asyncio.create_subprocess_exec(sys.executable, "-c", SUPERVISOR, str(tmp_path))
    await until(lambda: is_ready(tmp_path))
    pids = load_endpoints(tmp_path).pids
    assert pids["plane"] == supervisor.pid
    workers = [worker_of(tmp_path, service) for service in ("orchestrator", "host")]
    supervisor.kill()
    await supervisor.wait()
    await until(lambda: not any(map(is_running, [*pids.values(), *workers])))
    with pytest.raises(PlaneError, match="no plane is up"):
        load_endpoints(tmp_path)
    async with running(make_plane(tmp_path, host="ok")):
        assert load_endpoints(tmp_path).pids["plane"] == os.getpid()


def is_ready(home: Path) -> bool:
    file = home / "endpoints.json"
    return file.exists() and bool(json.loads(file.read_text())["ready"])
