"""One real Kafka and one real Valkey for the whole run, started by the first test that asks for them.

Set HEADWAY_TEST_KAFKA=host:port to test against a broker of your own: every test uses fresh names on it.

Properties are tried on the same examples in every run, few enough for each change to wait for them;
`--hypothesis-profile=thorough` tries many more, new ones each time.
"""

import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings

from headway.plane.kafka import EmbeddedKafka
from headway.plane.ports import free_ports
from headway.plane.valkey import EmbeddedValkey
from services.chassis.kafka.connection import Connection

settings.register_profile("quick", derandomize=True, deadline=None, max_examples=100, stateful_step_count=40)
settings.register_profile(
    "thorough",
    deadline=None,
    max_examples=1_000,
    stateful_step_count=80,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("quick")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two processes share the tests. What starts whole planes stays in one, so that they come one after another, and
    what shares the broker, the store or the models in one as well; most of the first is waiting, and leaves a core.
    """
    for item in items:
        asked = set(getattr(item, "fixturenames", ()))
        if item.get_closest_marker("plane"):
            item.add_marker(pytest.mark.xdist_group("planes"))
        elif asked & {"kafka_bootstrap", "redis_url", "pipelines"} or any(
            map(item.get_closest_marker, ("models", "triton"))
        ):
            item.add_marker(pytest.mark.xdist_group("servers"))


@pytest.fixture(scope="session")
async def kafka_bootstrap() -> AsyncIterator[str]:
    """host:port of the broker."""
    if external := os.environ.get("HEADWAY_TEST_KAFKA"):
        yield external
        return
    with TemporaryDirectory(prefix="headway-kafka-", ignore_cleanup_errors=True) as folder:
        kafka = EmbeddedKafka(Path(folder), free_ports(1)[0])
        await kafka.start(print)
        try:
            yield kafka.bootstrap
        finally:
            await kafka.stop(grace_s=0.0)  # in order it takes 3 s, for data that nobody will read


@pytest.fixture(scope="session")
async def redis_url() -> AsyncIterator[str]:
    """URL of the store. Tests share it: they use keys of their own."""
    with TemporaryDirectory(prefix="headway-valkey-") as folder:
        valkey = EmbeddedValkey(Path(folder), free_ports(1)[0])
        await valkey.start(print)
        try:
            yield valkey.url
        finally:
            await valkey.stop()


@pytest.fixture
def topic_prefix() -> str:
    """Fresh for each test: no test sees another one's topics or groups."""
    return f"t{uuid.uuid4().hex[:12]}."


@pytest.fixture
def connection(kafka_bootstrap: str, topic_prefix: str) -> Connection:
    """How to reach the broker, under names of this test's own."""
    return Connection(kafka_bootstrap, topic_prefix=topic_prefix, group_prefix=topic_prefix, client_id="test")
