"""Publishing a configuration on a real broker: topics first, and no work left in a lane that is no longer there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headway.cli.exits import CliError, Exit
from headway.cli.live import read_applied
from headway.cli.logs import open_logs
from headway.cli.revisions import open_history, prepare, until_taken
from schemas.config import Bundle, Tenant
from schemas.fleet import ServiceStatus
from schemas.topics import CONFIG, FLEET
from services.chassis.kafka.aiokafka_adapter import AioKafkaProducer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.messages import encode
from services.chassis.kafka.types import Outgoing

pytestmark = pytest.mark.kafka

TOPIC = "inference-tasks-llm"


def bundle(**lanes: str) -> Bundle:
    llm = {"backends": [{"name": "local", "engine": {"kind": "simulated"}}], "lanes": lanes}
    return Bundle.model_validate({"model_classes": {"llm": llm}})


@asynccontextmanager
async def speaking(connection: Connection, *statuses: ServiceStatus) -> AsyncIterator[None]:
    """As services do: a status is news again and again."""
    records = [Outgoing(FLEET, encode(status), status.instance.encode()) for status in statuses]

    async def repeat() -> None:
        while True:
            await producer.send_all(records)
            await asyncio.sleep(0.1)

    producer = AioKafkaProducer(connection)
    await producer.start()
    repeating = asyncio.create_task(repeat())
    try:
        yield
    finally:
        repeating.cancel()
        await asyncio.gather(repeating, return_exceptions=True)
        await producer.stop()


async def test_what_is_published_is_in_force_and_an_older_revision_can_be_again(connection: Connection) -> None:
    first, second = bundle(), bundle(interactive="0-3", standard="4-7", batch="8-11")
    for one in (first, second):
        await prepare(connection, Bundle(), one)
        async with open_history(connection) as history:
            await history.publish(one)
    async with open_history(connection) as history:
        await history.rollback(1)
    async with open_logs(connection) as logs:
        applied = await read_applied(logs)
        assert len(await logs.partitions(TOPIC)) == 12
    assert (applied.current, sorted(applied.revisions)) == (1, [1, 2])
    assert (applied.bundle, applied.newest and applied.newest.bundle) == (first, second)
    assert list(applied.live.queues) == [("llm", "local")]


async def test_before_the_first_apply_there_is_nothing_not_even_a_topic(connection: Connection) -> None:
    async with open_logs(connection) as logs:
        applied = await read_applied(logs)
        assert await logs.partitions(CONFIG) == []
    assert (applied.current, applied.bundle) == (None, Bundle())
    with pytest.raises(CliError, match="run `headway config apply`"):
        _ = applied.live


async def test_a_partition_that_holds_work_keeps_its_lane(connection: Connection) -> None:
    old, new = bundle(), bundle(interactive="0-4", standard="5-7", batch="8-9")
    await prepare(connection, Bundle(), old)
    producer = AioKafkaProducer(connection)
    await producer.start()
    await producer.send_all([Outgoing(TOPIC, b"{}", partition=4)])
    await producer.stop()
    with pytest.raises(CliError, match=f"partition 4 of {TOPIC} would leave its lane but holds work") as error:
        await prepare(connection, old, new)
    assert error.value.code is Exit.PROBLEMS
    await prepare(connection, old, bundle(interactive="0-3", standard="4-6", batch="7-9"))


async def test_a_tenant_whose_requests_are_still_to_be_read_stays(connection: Connection) -> None:
    topic = "inference-requests-acme"
    old = bundle().model_copy(update={"tenants": {"acme": Tenant(ingress_topics=(topic,))}})
    await prepare(connection, Bundle(), old)
    await prepare(connection, old, bundle())
    producer = AioKafkaProducer(connection)
    await producer.start()
    await producer.send_all([Outgoing(topic, b"{}", b"key")])
    await producer.stop()
    with pytest.raises(CliError, match=f"{topic} would no longer be read but holds requests") as error:
        await prepare(connection, old, bundle())
    assert error.value.code is Exit.PROBLEMS


@pytest.mark.parametrize(("revision", "late"), [(2, False), (1, True)])
async def test_a_revision_is_taken_when_every_live_service_says_so(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, revision: int, late: bool
) -> None:
    monkeypatch.setattr("headway.cli.revisions.TAKEN_TIMEOUT_S", 3.0)
    monkeypatch.setattr("headway.cli.revisions.SILENCE_S", 3.0)
    await prepare(connection, Bundle(), bundle())
    statuses = [ServiceStatus(instance=name, service=name, revision=revision) for name in ("orchestrator", "host")]
    async with speaking(connection, *statuses):
        if late:
            with pytest.raises(CliError, match="not taken within 3 s by orchestrator, host"):
                await until_taken(connection, 2)
        else:
            await until_taken(connection, 2)
