"""What became of every request, by the log: when the broker took it, and each answer that was ever published."""

import asyncio
import contextlib
from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Self
from uuid import uuid4

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord
from pydantic_core import from_json

from loadtest.measure import percentile, summary_ms
from schemas.base import RunStatus
from schemas.topics import REQUESTS, RESPONSES

LATE_MS = 15_000
"""A run may end so long after its deadline: what is promised."""
POLL_MS = 100
REPEATS_S = 2.0
"""How long is waited for a second answer once every request has one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One response record."""

    at_ms: int
    status: str
    digest: bytes


@dataclass(slots=True)
class Entry:
    """One request, and its answers in log order. Times are the broker's."""

    asked_ms: int
    answers: list[Answer] = field(default_factory=list)

    @property
    def latency_s(self) -> float:
        """To the first answer."""
        return (self.answers[0].at_ms - self.asked_ms) / 1_000

    @property
    def succeeded(self) -> bool:
        """Whether the run did what was asked."""
        return bool(self.answers) and self.answers[0].status == RunStatus.SUCCEEDED

    def overlaps(self, from_ms: int, to_ms: int) -> bool:
        """Whether it was on its way within that time."""
        return self.asked_ms <= to_ms and (not self.answers or from_ms <= self.answers[0].at_ms)


class Ledger:
    """Follows the topics of requests and of responses from where they end now. An async context manager.

    Of interest are requests whose ids it has made.
    """

    def __init__(self, bootstrap: str, deadline_s: float) -> None:
        self.entries: dict[str, Entry] = {}
        self.acknowledged: set[str] = set()
        """Ids of requests that the broker has taken, as the client was told."""
        self._name = uuid4().hex[:8]
        self._deadline_ms = round(deadline_s * 1_000)
        self._early: dict[str, list[Answer]] = {}
        """Answers read before their requests: the topics are read side by side."""
        self._consumer = AIOKafkaConsumer(
            REQUESTS, RESPONSES, bootstrap_servers=bootstrap, enable_auto_commit=False, fetch_max_wait_ms=50
        )
        self._reading: asyncio.Task[None] | None = None
        self._read_more = asyncio.Event()

    def request_id(self, number: int) -> str:
        """The id of a request that will be followed."""
        return f"{self._name}-{number}"

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        for partition, offset in (await self._consumer.end_offsets(self._consumer.assignment())).items():
            self._consumer.seek(partition, offset)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reading:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        await self._consumer.stop()

    async def settle(self) -> None:
        """Until each has its answer, or could only have a late one; then long enough for a second one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout((self._deadline_ms + LATE_MS) / 1_000):
                while not all(self._is_answered(request_id) for request_id in self.acknowledged):
                    self._read_more.clear()
                    await self._read_more.wait()
        await asyncio.sleep(REPEATS_S)

    def verdict(self) -> dict[str, Any]:
        """Counts of requests: `lost` had no answer, `conflicting` two that differ, `repeated` the same one again."""
        entries = self.entries.values()
        answered = [entry for entry in entries if entry.answers]
        return {
            "requests": len(entries),
            "succeeded": sum(entry.succeeded for entry in entries),
            "failed": sum(not entry.succeeded for entry in answered),
            "lost": sum(not self._is_answered(request_id) for request_id in self.acknowledged | self.entries.keys()),
            "late": sum(entry.latency_s * 1_000 > self._deadline_ms + LATE_MS for entry in answered),
            "conflicting": sum(len({answer.digest for answer in entry.answers}) > 1 for entry in answered),
            "repeated": sum(len(entry.answers) > 1 for entry in answered),
            "latency_ms": latencies_ms(answered),
        }

    def goodput_per_s(self, from_ms: int, to_ms: int) -> float:
        """Runs that succeeded within that time, a second."""
        ended = (entry.answers[0].at_ms for entry in self.entries.values() if entry.succeeded)
        return round(sum(from_ms <= at_ms < to_ms for at_ms in ended) / (to_ms - from_ms) * 1_000, 1)

    def _is_answered(self, request_id: str) -> bool:
        return request_id in self.entries and bool(self.entries[request_id].answers)

    async def _read(self) -> None:
        while True:
            for records in (await self._consumer.getmany(timeout_ms=POLL_MS)).values():
                for record in records:
                    self._enter(record)
            self._read_more.set()

    def _enter(self, record: ConsumerRecord) -> None:
        request_id = (record.key or b"").decode(errors="replace")
        if not request_id.startswith(f"{self._name}-"):
            return
        if record.topic == REQUESTS:
            self.entries.setdefault(request_id, Entry(record.timestamp, self._early.pop(request_id, [])))
            return
        status = str(from_json(record.value)["status"])
        answer = Answer(record.timestamp, status, sha256(record.value).digest())
        known = self.entries.get(request_id)
        (known.answers if known else self._early.setdefault(request_id, [])).append(answer)


def latencies_ms(entries: Collection[Entry]) -> dict[str, float]:
    """From request to answer, of those that have one."""
    seconds = [entry.latency_s for entry in entries if entry.answers]
    return summary_ms(seconds, 50, 95, 99) | {"max": round(percentile(seconds, 100) * 1_000, 3)}
