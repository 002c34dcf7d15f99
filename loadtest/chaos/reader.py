"""Reads every record of a plane's topics, from the first to the last."""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from pydantic_core import from_json

from loadtest.chaos.seen import EventSeen, LetterSeen, Place, RequestSeen, ResponseSeen, Seen, UsageSeen, as_object
from schemas import headers
from schemas.base import Json
from schemas.topics import DEAD_LETTER_SUFFIX, EVENTS, REQUESTS, RESPONSES, USAGE

POLL_MS = 500
PASSED_OVER = re.compile(r'"event":"unknown_event_type".*"partition":(\d+),"offset":(\d+)')


async def read_all(bootstrap: str, logs: Path) -> Seen:
    """What the checker needs. The topics must be quiet: the end is where they end now."""
    seen = Seen()
    async with AIOKafkaConsumer(*await _topics(bootstrap), **_from_the_beginning(bootstrap)) as consumer:
        async for record in _records(consumer):
            take = _TAKE.get(record.topic, _take_letter)
            take(seen, Place(record.topic, record.partition, record.offset, record.timestamp), record)
    seen.passed_over = passed_over(logs)
    return seen


class ResponseFollower:
    """Which requests have a response by now."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = AIOKafkaConsumer(RESPONSES, **_from_the_beginning(bootstrap))
        self.answered: set[str] = set()

    async def __aenter__(self) -> "ResponseFollower":
        await self._consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def follow(self) -> None:
        """Takes what has come; returns after half a second without more."""
        while batches := await self._consumer.getmany(timeout_ms=POLL_MS):
            for records in batches.values():
                self.answered.update(_text(record.key) for record in records)


def passed_over(logs: Path) -> list[str]:
    """The events that the aggregators' logs say they do not know."""
    texts = (log.read_text(errors="replace") for log in sorted(logs.glob("aggregator*.log*")))
    found = (PASSED_OVER.search(line) for text in texts for line in text.splitlines())
    return [f"{EVENTS}/{match[1]}/{match[2]}" for match in found if match]


async def _topics(bootstrap: str) -> list[str]:
    """Those with records for the checker."""
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        return [name for name in await consumer.topics() if name in _TAKE or name.endswith(DEAD_LETTER_SUFFIX)]


def _from_the_beginning(bootstrap: str) -> dict[str, Any]:
    """Outside any group: every partition is assigned at once."""
    return {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", "enable_auto_commit": False}


async def _records(consumer: AIOKafkaConsumer) -> AsyncIterator[Any]:
    partitions = consumer.assignment()
    ends: dict[TopicPartition, int] = await consumer.end_offsets(partitions)
    begins: dict[TopicPartition, int] = await consumer.beginning_offsets(partitions)
    behind = {partition for partition in partitions if begins[partition] < ends[partition]}
    while behind:
        batches = await consumer.getmany(*behind, timeout_ms=POLL_MS, max_records=2_000)
        for records in batches.values():
            for record in records:
                yield record
        behind = {partition for partition in behind if await consumer.position(partition) < ends[partition]}


def _take_request(seen: Seen, place: Place, record: Any) -> None:
    given = as_object(as_object(_json(record.value)).get("input"))
    seen.requests.append(RequestSeen(place, _text(record.key), given.get("nonce")))


def _take_response(seen: Seen, place: Place, record: Any) -> None:
    seen.responses.append(ResponseSeen(place, _text(record.key), record.value or b""))


def _take_usage(seen: Seen, place: Place, record: Any) -> None:
    run_id = as_object(_json(record.value)).get("run_id", "")
    seen.usage.append(UsageSeen(place, str(run_id), record.value or b""))


def _take_event(seen: Seen, place: Place, record: Any) -> None:
    event = as_object(_json(record.value))
    run_id = event.get("run_id")
    if isinstance(event.get("type"), str) and isinstance(run_id, str):
        seen.events.append(_event(place, event))


def _event(place: Place, event: Mapping[str, Json]) -> EventSeen:
    return EventSeen(
        place,
        type=event["type"],
        run_id=event["run_id"],
        request_id=event.get("request_id"),
        step=event.get("step"),
        attempt=event.get("attempt") or 0,
        fallback=event.get("fallback") or 0,
        model_class=event.get("model_class"),
        task_at_ms=event.get("task_at"),
        queue_ms=event.get("queue_ms"),
        service_ms=event.get("service_ms") or 0.0,
        by_claim_check=as_object(event.get("output")).get("ref") is not None,
        code=as_object(event.get("error")).get("code"),
    )


def _take_letter(seen: Seen, place: Place, record: Any) -> None:
    told = {name: value.decode(errors="replace") for name, value in record.headers}
    origin = (headers.X_ORIGINAL_TOPIC, headers.X_ORIGINAL_PARTITION, headers.X_ORIGINAL_OFFSET)
    seen.letters.append(
        LetterSeen(
            place,
            origin="/".join(told.get(name, "?") for name in origin),
            reason=told.get(headers.X_ERROR_CLASS, ""),
            message=told.get(headers.X_ERROR_MESSAGE, ""),
            key=_text(record.key),
            value_bytes=len(record.value or b""),
        )
    )


_TAKE: Mapping[str, Callable[[Seen, Place, Any], None]] = {
    REQUESTS: _take_request,
    EVENTS: _take_event,
    RESPONSES: _take_response,
    USAGE: _take_usage,
}


def _json(value: bytes | None) -> Json:
    try:
        return from_json(value or b"null")
    except ValueError:
        return None


def _text(key: bytes | None) -> str:
    return (key or b"").decode(errors="replace")
