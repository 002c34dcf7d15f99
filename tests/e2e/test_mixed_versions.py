"""An older version's services beside the current ones, as a rolling upgrade and its way back go through them.

The older version is a commit of this repository's history: its own tree, with the dependencies of today.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer

from headway.client import HeadwayClient
from headway.plane.ports import choose_ports, free_ports, metrics_setting
from headway.plane.probes import is_ready
from headway.plane.process import ChildProcess
from headway.plane.service import SetupSpec
from headway.plane.supervisor import Plane
from schemas.base import RunStatus
from schemas.topics import DEAD_LETTER_SUFFIX
from tests.e2e.memberships import Membership, end, memberships
from tests.e2e.planes import RunningPlane

pytestmark = [pytest.mark.kafka, pytest.mark.plane]

OLDER = "44446a1ee0b3196777869e952bcc3168c3ffcd19"
"""The version from which one upgrades without a stop. Move it on when a version is released; in between only together
with a line in the changelog, that says what the older one cannot read."""

ROOT = Path(__file__).parents[2]
UPGRADE = ("aggregator", "orchestrator", "host")
"""The order of an upgrade: who reads the log first learns what the others will write."""
MEMBERS = {"host": "worker"}
"""Whose processes are in the groups, if not those of the service itself."""
BURST = 40
READY_S = 60.0
RUN_S = 60.0


class Version(NamedTuple):
    """A version of the plane, and where its sources are."""

    name: str
    tree: Path

    @property
    def environment(self) -> dict[str, str]:
        """In which Python imports it, wherever the package is installed from."""
        return {**os.environ, "PYTHONPATH": str(self.tree)}


CURRENT = Version("current", ROOT)


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Version:
    git = ("git", "-C", str(ROOT))
    if subprocess.run((*git, "cat-file", "-e", f"{OLDER}^{{commit}}"), capture_output=True, check=False).returncode:
        pytest.skip(f"there is no commit {OLDER[:7]} here: the sources came without their history")
    tree = tmp_path_factory.mktemp("older")
    archive = subprocess.run((*git, "archive", OLDER), stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(("tar", "-x", "-C", str(tree)), input=archive, check=True)
    return Version("older", tree)


def test_an_older_service_imports_the_older_tree(older: Version) -> None:
    program = "import services, schemas, headway; print(*(m.__path__[0] for m in (services, schemas, headway)))"
    found = subprocess.check_output((sys.executable, "-c", program), cwd=older.tree, env=older.environment, text=True)
    assert [Path(path).parent for path in found.split()] == [older.tree] * 3


async def test_a_rolling_upgrade_and_its_way_back_fail_no_run(older: Version, tmp_path: Path) -> None:
    async with bare_plane(older, tmp_path) as plane, HeadwayClient(plane.endpoints.kafka) as headway:
        services, asked = Services(plane, older.tree / "tests/e2e/config"), Asked(headway)
        try:
            await asyncio.gather(*(services.start(older, name) for name in UPGRADE))
            for name in UPGRADE:
                await hand_over(services, name, older, CURRENT, asked)
            for name in reversed(UPGRADE):
                await hand_over(services, name, CURRENT, older, asked)
        finally:
            await services.stop()
        responses = await plane.responses(*asked.ids)
        letters = await dead_letters(plane)
    assert {response["status"] for response in responses.values()} == {RunStatus.SUCCEEDED}
    assert len({response["response_id"] for response in responses.values()}) == len(asked.ids)
    assert letters == {}


async def hand_over(services: "Services", name: str, before: Version, after: Version, asked: "Asked") -> None:
    """Both versions share the work, then one of them is killed in the middle of it and the other takes it over."""
    await services.start(after, name)
    await asked.answered(await asked.burst())
    first, *on_their_way = await asked.burst()
    await asked.answered([first])
    await services.kill(before, name)
    await asked.answered(on_their_way)


class Asked:
    """Runs that were asked for."""

    def __init__(self, headway: HeadwayClient) -> None:
        self.ids: list[str] = []
        self._headway = headway
        self._numbers = count()

    async def burst(self) -> list[str]:
        """The ids of new runs, acknowledged."""
        ids = [f"mixed-{next(self._numbers)}" for _ in range(BURST)]
        await asyncio.gather(
            *(self._headway.submit("ask-like", {"question": "why?"}, request_id=request_id) for request_id in ids)
        )
        self.ids.extend(ids)
        return ids

    async def answered(self, ids: list[str]) -> None:
        """Until each has succeeded."""
        for response in await asyncio.gather(*(self._headway.wait(request_id, RUN_S) for request_id in ids)):
            assert response.status is RunStatus.SUCCEEDED, response


class Services:
    """Service processes of several versions on one plane."""

    def __init__(self, plane: RunningPlane, config: Path) -> None:
        self._home = plane.home
        self._kafka = plane.endpoints.kafka
        self._environment = {
            "HEADWAY_HOME": str(plane.home),
            "HEADWAY_CONFIG": str(config),
            "HEADWAY_KAFKA_BOOTSTRAP_SERVERS": plane.endpoints.kafka,
            "HEADWAY_REDIS_URL": plane.endpoints.redis,
        }
        self._running: dict[tuple[Version, str], ChildProcess] = {}
        self._memberships: dict[tuple[Version, str], set[Membership]] = {}

    async def start(self, version: Version, name: str) -> None:
        """Returns when it is ready: a member of its groups; a host when its workers are."""
        port = free_ports(1)[0]
        others = await self._members(name)
        process = await ChildProcess.spawn(
            (sys.executable, "-m", "headway", "serve", name),
            {**version.environment, **self._environment, metrics_setting(name): str(port)},
            self._home / "logs" / f"{name}-{version.name}.log",
            folder=version.tree,
        )
        self._running[version, name] = process
        await process.until(lambda: is_ready(port), READY_S)
        self._memberships[version, name] = await self._members(name) - others
        assert self._memberships[version, name]

    async def kill(self, version: Version, name: str) -> None:
        """SIGKILL, to a host's workers as well. What they ran stays as it is; only their groups hear of it."""
        process = self._running.pop((version, name))
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        await end(self._kafka, self._memberships.pop((version, name)))

    async def _members(self, name: str) -> set[Membership]:
        return await memberships(self._kafka, MEMBERS.get(name, name))

    async def stop(self) -> None:
        """In order, so that nothing is left to be taken over."""
        await asyncio.gather(*(process.stop(grace_s=6.0) for process in self._running.values()))


@asynccontextmanager
async def bare_plane(version: Version, home: Path) -> AsyncIterator[RunningPlane]:
    """Kafka with the topics and the configuration of a version, and Valkey; no services."""
    apply = ("config", "apply", str(version.tree / "tests/e2e/config"), "--no-wait")
    setup = SetupSpec((sys.executable, "-P", "-m", "headway", *apply), version.environment)
    plane = Plane(home, choose_ports("auto"), (), setup, lambda *_: None)
    endpoints = await plane.start()
    try:
        yield RunningPlane(home, endpoints)
    finally:
        await plane.stop()


async def dead_letters(plane: RunningPlane) -> dict[str, int]:
    """How many stand in each topic that has any: what one version could not read of another's."""
    async with AIOKafkaConsumer(bootstrap_servers=plane.endpoints.kafka) as consumer:
        topics = [topic for topic in await consumer.topics() if topic.endswith(DEAD_LETTER_SUFFIX)]
        consumer.subscribe(topics)
        await consumer.getmany(timeout_ms=0)
        ends = await consumer.end_offsets(consumer.assignment())
    assert {tp.topic for tp in ends} == set(topics)
    return {tp.topic: end for tp, end in ends.items() if end}
