"""The Python client on a real broker, with the test in the place of the plane."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headway.cli.logs import open_logs
from headway.client import (
    HeadwayClient,
    InvalidRequestError,
    NoResponseError,
    TooManyOutstandingError,
    UnreachableError,
)
from schemas.base import Priority, RunStatus
from schemas.responses import InferenceResponse, Timing
from schemas.topics import REQUESTS, RESPONSES, all_topics
from services.chassis.kafka.admin import Admin
from services.chassis.kafka.aiokafka_adapter import AioKafkaProducer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.messages import encode
from services.chassis.kafka.types import Outgoing

pytestmark = pytest.mark.kafka


@pytest.fixture
async def topics(connection: Connection) -> None:
    async with Admin(connection) as admin:
        await admin.reconcile([topic for topic in all_topics({}, {}) if topic.name in (REQUESTS, RESPONSES)], 1)


@pytest.fixture
async def plane(connection: Connection, topics: None) -> AsyncIterator[AioKafkaProducer]:
    """Publishes what a plane would."""
    producer = AioKafkaProducer(connection)
    await producer.start()
    yield producer
    await producer.stop()


def client(connection: Connection, **more: Any) -> HeadwayClient:
    return HeadwayClient(
        connection.bootstrap_servers,
        request_topic=connection.topic(REQUESTS),
        response_topic=connection.topic(RESPONSES),
        **more,
    )


def response(request_id: str, answer: str = "") -> Outgoing:
    message = InferenceResponse(
        response_id="r", request_id=request_id, run_id="run", tenant="default", pipeline="ask",
        status=RunStatus.SUCCEEDED, output={"answer": answer}, timing=Timing(total_ms=1),
        started_at="", finished_at="",
    )  # fmt: skip
    return Outgoing(RESPONSES, encode(message), request_id.encode())


async def test_many_requests_wait_for_their_own_answers(connection: Connection, plane: AioKafkaProducer) -> None:
    async with client(connection) as headway:
        ids = [(await headway.submit("ask", {"question": str(n)})).request_id for n in range(20)]
        waits = [asyncio.create_task(headway.wait(request_id, 10)) for request_id in ids]
        await plane.send_all([response(request_id, request_id) for request_id in reversed(ids)])
        assert [(await wait).output["answer"] for wait in waits] == ids


async def test_an_answer_that_comes_before_anybody_waits_is_kept(
    connection: Connection, plane: AioKafkaProducer
) -> None:
    async with client(connection) as headway:
        submission = await headway.submit("ask", {}, request_id="early")
        await plane.send_all([response("early", "first"), response("late")])
        await headway.wait("late", 10)
        assert (await headway.wait(submission.request_id, 10)).output["answer"] == "first"


async def test_answers_from_before_the_client_came_are_not_its_own(
    connection: Connection, plane: AioKafkaProducer
) -> None:
    await plane.send_all([response("same", "old")])
    async with client(connection) as headway:
        await headway.submit("ask", {}, request_id="same")
        with pytest.raises(NoResponseError, match=r"no response to request same within 0\.3 s"):
            await headway.wait("same", 0.3)
        await plane.send_all([response("same", "new")])
        assert (await headway.wait("same", 10)).output["answer"] == "new"


async def test_the_record_is_what_was_asked_for_and_nothing_else(
    connection: Connection, plane: AioKafkaProducer
) -> None:
    options: Any = {"request_id": "r1", "priority": Priority.BATCH, "deadline_s": 1.5, "session": "s"}
    async with client(connection) as headway:
        await headway.submit("ask@2", {"q": "é", "n": None}, **options, labels={"a": "b"})
    async with open_logs(connection) as logs:
        (record,) = [record async for record in logs.read(REQUESTS, await logs.partitions(REQUESTS))]
    assert record.key == b"r1"
    assert record.value is not None
    assert json.loads(record.value) == {
        "schema_version": 1, "request_id": "r1", "pipeline": "ask@2", "input": {"q": "é", "n": None},
        "priority": "batch", "deadline_ms": 1500, "session": "s", "labels": {"a": "b"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("Ask!", {}, {}), "pipeline: "),
        (("ask", {"a": float("nan")}, {}), "input: not JSON"),
        (("ask", {"a": "\ud800"}, {}), "input: not JSON"),
        (("ask", {"a": object()}, {}), "input: not JSON"),
        (("ask", {}, {"deadline_s": 0}), "deadline_ms: "),
        (("ask", {}, {"request_id": "a\nb"}), "request_id: "),
        (("ask", {"a": "x" * (1 << 20)}, {}), "input: the request is larger than"),
    ],
)
async def test_what_is_no_request_is_refused_before_it_is_sent(
    connection: Connection, topics: None, asked: tuple[str, dict[str, Any], Any], words: str
) -> None:
    pipeline, value, options = asked
    async with client(connection, max_outstanding=1) as headway:
        with pytest.raises(InvalidRequestError, match=words):
            await headway.submit(pipeline, value, **options)
        await headway.submit("ask", {})


async def test_outstanding_requests_are_bounded(connection: Connection, topics: None) -> None:
    async with client(connection, max_outstanding=2) as headway:
        await headway.submit("ask", {})
        with pytest.raises(NoResponseError):
            await headway.run("ask", {}, timeout_s=0.1)
        await headway.submit("ask", {})
        with pytest.raises(TooManyOutstandingError, match="2 requests are outstanding"):
            await headway.submit("ask", {})


async def test_a_stream_has_every_response_from_now_on(connection: Connection, plane: AioKafkaProducer) -> None:
    await plane.send_all([response("before")])
    async with client(connection) as headway, headway.responses() as stream:
        await plane.send_all([response(name) for name in ("a", "b", "c")])
        async with asyncio.timeout(10):
            assert {(await anext(stream)).request_id for _ in range(3)} == {"a", "b", "c"}


async def test_who_waits_is_told_when_the_client_stops(connection: Connection, topics: None) -> None:
    headway = client(connection)
    await headway.start()
    wait = asyncio.create_task(headway.wait("never", 30))
    await headway.submit("ask", {})
    await headway.stop()
    with pytest.raises(UnreachableError, match="stopped before the response"):
        await wait
    with pytest.raises(UnreachableError, match="not started"):
        await headway.submit("ask", {})


async def test_no_broker_and_no_topic_are_said_clearly(connection: Connection) -> None:
    with pytest.raises(UnreachableError, match=r"no Kafka broker answers at 127\.0\.0\.1:1"):
        await HeadwayClient("127.0.0.1:1").start()
    with pytest.raises(UnreachableError, match=f"the broker has no topic {connection.topic(RESPONSES)}"):
        await client(connection).start()
