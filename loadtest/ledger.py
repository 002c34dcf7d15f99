"""What became of every request, by the log: when the broker took it, and each answer that was ever published."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from aiokafka import AIOKafkaConsumer
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
    value: bytes

    @property
    def status(self) -> str:
        """How the run ended."""
        return str(from_json(self.value)["status"])


@dataclass(slots=True)
class Entry:
    """One request, and its answers in log order. Times are the broker's."""

    asked_ms: int | None = None
    answers: list[Answer] = field(default_factory=list)

    @property
    def latency_ms(self) -> int:
        """To the first answer; of a request that has one."""
        assert self.asked_ms is not None
        return self.answers[0].at_ms - self.asked_ms

    @property
    def succeeded(self) -> bool:
        """Whether the run did what was asked."""
        return bool(self.answers) and self.answers[0].status == RunStatus.SUCCEEDED

    def overlaps(self, from_ms: int, to_ms: int) -> bool:
        """Whether it was on its way within that time."""
        assert self.asked_ms is not None
        return self.asked_ms <= to_ms and (not self.answers or from_ms <= self.answers[0].at_ms)


class Ledger:
    """An account of the requests whose ids it has made."""

    def __init__(self, deadline_s: float) -> None:
        self.acknowledged: set[str] = set()
        """Ids of requests that the broker has taken, as the client was told."""
        self.changed = asyncio.Event()
        self._deadline_ms = round(deadline_s * 1_000)
        self._name = uuid4().hex[:8]
        self._entries: dict[str, Entry] = {}

    def request_id(self, number: int) -> str:
        """The id of a request that will be followed."""
        return f"{self._name}-{number}"

    def enter(self, topic: str, key: bytes | None, value: bytes | None, at_ms: int) -> None:
        """Takes a record of requests or responses; the two topics are read side by side, in no order."""
        request_id = (key or b"").decode(errors="replace")
        if not request_id.startswith(f"{self._name}-"):
            return
        entry = self._entries.setdefault(request_id, Entry())
        if topic == RESPONSES:
            entry.answers.append(Answer(at_ms, value or b""))
        elif entry.asked_ms is None:
            entry.asked_ms = at_ms

    @property
    def entries(self) -> list[Entry]:
        """All requests that stand in the log."""
        return [entry for entry in self._entries.values() if entry.asked_ms is not None]

    @property
    def is_settled(self) -> bool:
        """Whether every request has an answer."""
        return not self._unanswered()

    async def settle(self) -> None:
        """Until every request is answered, or could only be so too late; then long enough for a second answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout((self._deadline_ms + LATE_MS) / 1_000):
                while not self.is_settled:
                    self.changed.clear()
                    await self.changed.wait()
        await asyncio.sleep(REPEATS_S)

    def verdict(self) -> dict[str, Any]:
        """Counts of requests: `lost` had no answer, `conflicting` two that differ, `repeated` the same one again."""
        answered = [entry for entry in self.entries if entry.answers]
        return {
            "requests": len(self.acknowledged | self._entries.keys()),
            "succeeded": sum(entry.succeeded for entry in answered),
            "failed": sum(not entry.succeeded for entry in answered),
            "lost": len(self._unanswered()),
            "late": sum(entry.latency_ms > self._deadline_ms + LATE_MS for entry in answered),
            "conflicting": sum(len({answer.value for answer in entry.answers}) > 1 for entry in answered),
            "repeated": sum(len(entry.answers) > 1 for entry in answered),
            "latency_ms": latencies_ms(answered),
        }

    def goodput_per_s(self, from_ms: int, to_ms: int) -> float:
        """Runs that succeeded within that time, a second."""
        ended = [entry.answers[0].at_ms for entry in self.entries if entry.succeeded]
        return round(sum(from_ms <= at_ms < to_ms for at_ms in ended) / (to_ms - from_ms) * 1_000, 1)

    def _unanswered(self) -> set[str]:
        known = self.acknowledged | self._entries.keys()
        return {name for name in known if name not in self._entries or not self._entries[name].answers}


@asynccontextmanager
async def following(bootstrap: str, deadline_s: float) -> AsyncIterator[Ledger]:
    """A ledger that is kept, from the present end of the topics on."""
    ledger = Ledger(deadline_s)
    consumer = AIOKafkaConsumer(
        REQUESTS, RESPONSES, bootstrap_servers=bootstrap, enable_auto_commit=False, fetch_max_wait_ms=50
    )
    async with consumer:
        for partition, offset in (await consumer.end_offsets(consumer.assignment())).items():
            consumer.seek(partition, offset)
        keeping = asyncio.create_task(_keep(ledger, consumer))
        try:
            yield ledger
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping


async def _keep(ledger: Ledger, consumer: AIOKafkaConsumer) -> None:
    while True:
        for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
            for record in records:
                ledger.enter(record.topic, record.key, record.value, record.timestamp)
        ledger.changed.set()


def latencies_ms(entries: Collection[Entry]) -> dict[str, float]:
    """From request to answer, of those that have one."""
    seconds = [entry.latency_ms / 1_000 for entry in entries if entry.answers]
    return summary_ms(seconds, 50, 95, 99) | {"max": round(percentile(seconds, 100) * 1_000, 3)}
