"""Rubbish on the ingress topic ends in a failed response or a dead letter that names the field; neighbours go on."""

import json
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.structs import ConsumerRecord

from headway.client import HeadwayClient
from schemas.base import RunStatus
from tests.e2e.planes import RunningPlane
from tests.headers import NotText

pytestmark = [pytest.mark.kafka, pytest.mark.plane]

DLQ = "inference-requests-dlq"
GOOD = {"pipeline": "ask-like", "input": {"question": "why?"}}


def body(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


ANSWERED = {
    "wrong-version": (body(schema_version=2), "schema_version"),
    "unknown-pipeline": (body(pipeline="nope"), "pipeline"),
    "breaks-its-schema": (body(input={"question": 7}), "input.question"),
    "900-kb-of-input": (body(input={"question": "x" * 900_000}), "input.question"),
    "nul": (body(input={"question": "a\x00b"}), "input.question"),
    "lone-surrogate": (body(input={"question": "\ud800"}), "input.question"),
    "deeply-nested": (body(input={"question": json.loads("[" * 200 + "]" * 200)}), "input.question"),
    "nan": (b'{"pipeline": "ask-like", "input": {"question": NaN}}', "input.question"),
    "infinite-deadline": (body(deadline_ms=10**18), "deadline_ms"),
    "newline-in-session": (body(session="a\nb"), "session"),
}


@pytest.mark.parametrize("name", ANSWERED)
async def test_an_invalid_request_gets_a_failed_response_that_names_the_field(plane: RunningPlane, name: str) -> None:
    value, named = ANSWERED[name]
    await plane.publish(value, key=f"hostile-{name}".encode())
    response = (await plane.responses(f"hostile-{name}"))[f"hostile-{name}"]
    assert response["status"] == "failed"
    assert named in response["error"]["message"]


async def test_two_megabytes_sent_compressed_are_refused(plane: RunningPlane) -> None:
    await plane.publish(body(input={"question": "x" * 2_000_000}), key=b"hostile-2mb", compression="gzip")
    response = (await plane.responses("hostile-2mb"))["hostile-2mb"]
    assert (response["status"], response["error"]["code"]) == ("failed", "content_too_large")


DEAD = {
    "not-json": (b"hello \xe9", [], "not UTF-8"),
    "half-json": (b'{"pipeline": "ask-like"', [], "not JSON"),
    "a-list": (b"[]", [], "not a JSON object"),
    "empty": (b"", [], "not JSON"),
    "same-key-twice": (b'{"pipeline": "a", "pipeline": "b", "input": {}}', [], "same key twice"),
    "header-not-utf8": (body(), [("x-request-id", b"\xff\xfe")], "x-request-id"),
    "too-many-headers": (body(), [(f"h{n}", b"v") for n in range(1_000)], "headers"),
}


@pytest.mark.parametrize("name", DEAD)
async def test_what_cannot_be_answered_is_dead_lettered_unchanged_and_told(plane: RunningPlane, name: str) -> None:
    value, headers, why = DEAD[name]
    key = f"dead-{name}".encode()
    await plane.publish(value, key=key, headers=[*headers, ("authorization", b"Bearer secret")])

    def arrived(records: list[ConsumerRecord]) -> bool:
        return any(record.key == key for record in records)

    (letter,) = [record for record in await plane.read(DLQ, arrived) if record.key == key]
    told = dict(letter.headers)
    assert letter.value == value
    assert why in told["x-error-msg"].decode()
    assert told["x-orig-topic"] == b"inference-requests"
    assert "authorization" not in told


async def publish_unreadable(plane: RunningPlane, partition: int) -> None:
    """A request that aiokafka cannot decode."""
    producer = AIOKafkaProducer(bootstrap_servers=plane.endpoints.kafka)
    await producer.start()
    try:
        batch = producer.create_batch()
        batch._builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, -1, 1 << 20)
        batch.append(key=b"unreadable", value=body(), timestamp=None, headers=[(NotText(), b"x")])
        await (await producer.send_batch(batch, "inference-requests", partition=partition))
    finally:
        await producer.stop()


async def test_a_header_whose_name_is_not_utf8_costs_no_other_request(plane: RunningPlane) -> None:
    ids = [f"beside-unreadable-{number}" for number in range(48)]
    async with AIOKafkaProducer(bootstrap_servers=plane.endpoints.kafka, linger_ms=50) as producer:
        sent = [await producer.send("inference-requests", body(), name.encode()) for name in ids[:24]]
        for partition in (0, 5):
            await publish_unreadable(plane, partition)
        sent += [await producer.send("inference-requests", body(), name.encode()) for name in ids[24:]]
        for future in sent:
            await future
    responses = await plane.responses(*ids)
    assert {response["status"] for response in responses.values()} == {"succeeded"}

    def arrived(records: list[ConsumerRecord]) -> bool:
        return len(unreadable(records)) >= 2

    letters = unreadable(await plane.read(DLQ, arrived))
    assert {dict(letter.headers)["x-orig-partition"] for letter in letters} == {b"0", b"5"}


def unreadable(letters: list[ConsumerRecord]) -> list[ConsumerRecord]:
    """Those of which nothing could be read but where they stood."""
    return [one for one in letters if b"name is not UTF-8" in dict(one.headers).get("x-error-msg", b"")]


async def test_no_key_of_an_input_is_repeated(plane: RunningPlane) -> None:
    await plane.publish(body(input={"question": {"my secret prompt": "a\x00b"}}), key=b"hostile-key")
    response = (await plane.responses("hostile-key"))["hostile-key"]
    assert "`input.question.…`" in response["error"]["message"]
    logs = b"".join(log.read_bytes() for log in (plane.home / "logs").iterdir())
    assert b"run_rejected" in logs
    assert b"my secret prompt" not in logs


async def test_the_same_id_with_another_body_is_dead_lettered_and_never_answered_twice(plane: RunningPlane) -> None:
    await plane.publish(body(), key=b"conflict-1")
    await plane.responses("conflict-1")
    await plane.publish(body(input={"question": "another"}), key=b"conflict-1")

    def arrived(records: list[ConsumerRecord]) -> bool:
        return any(record.key == b"conflict-1" for record in records)

    (letter,) = [record for record in await plane.read(DLQ, arrived) if record.key == b"conflict-1"]
    assert dict(letter.headers)["x-error-class"] == b"idempotency_conflict"
    assert json.loads(letter.value or b"")["input"] == {"question": "another"}
    await plane.responses("conflict-1")


@pytest.mark.parametrize("topic", ["inference-joins", "inference-events", "inference-tasks-quick"])
async def test_rubbish_on_an_inner_topic_is_dead_lettered_and_its_neighbours_go_on(
    plane: RunningPlane, topic: str
) -> None:
    await plane.publish(b"\x00rubbish", key=b"poison", topic=topic)
    letters = await plane.read(f"{topic}-dlq", lambda records: any(record.key == b"poison" for record in records))
    assert letters[-1].value == b"\x00rubbish"
    async with HeadwayClient(plane.endpoints.kafka) as headway:
        responses = [await headway.run("ask-like", {"question": "why?"}, timeout_s=30) for _ in range(5)]
    assert {response.status for response in responses} == {RunStatus.SUCCEEDED}
