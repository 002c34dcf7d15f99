"""Rubbish on the ingress topic ends in a failed response or a dead letter that names the field; neighbours go on."""

import json
from typing import Any

import pytest
from aiokafka.structs import ConsumerRecord

from headway.client import HeadwayClient
from schemas.base import RunStatus
from tests.e2e.planes import RunningPlane

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
