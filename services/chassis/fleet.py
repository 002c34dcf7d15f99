"""Who is alive and how busy: statuses repeated on the fleet topic, and the picture they add up to."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from pydantic import ValidationError

from schemas import headers
from schemas.fleet import FLEET, BreakerState, FleetMessage, FleetStatus, Placement, ScalingDecision, WorkerStatus
from schemas.topics import FLEET as FLEET_TOPIC
from services.chassis.clock import LogClock
from services.chassis.kafka.messages import encode, message_type
from services.chassis.kafka.types import KafkaError, Outgoing, Producer, ProducerDeadError, Record
from services.chassis.logging import log

PUBLISH_EVERY_S = 3.0
SILENT_S = 12.0
"""Without an acknowledgement: then nothing that this process does reaches the log."""
EXPIRY_MS = 12_000
"""A status not repeated for so long, by the log's time, is no longer true."""
FOLLOW_TIMEOUT_S = 1.0

M = TypeVar("M", bound=FleetMessage)


class FleetPublisher:
    """Appends what `build` says now, every few seconds and when asked to hurry. A component.

    The acknowledgements keep the log clock fresh while nothing else happens.
    """

    def __init__(
        self,
        producer: Producer,
        clock: LogClock,
        build: Callable[[], Sequence[FleetMessage]],
        interval_s: float = PUBLISH_EVERY_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._producer = producer
        self._clock = clock
        self._build = build
        self._interval_s = interval_s
        self._due = asyncio.Event()
        self._monotonic = monotonic
        self._acknowledged_at: float | None = None

    def why_not_ready(self) -> str | None:
        """A readiness check: a broker that stands still lets polls return, but acknowledges nothing."""
        at = self._acknowledged_at
        if at is not None and self._monotonic() - at <= SILENT_S:
            return None
        return "Kafka has acknowledged nothing yet" if at is None else f"no acknowledgement for {SILENT_S:.0f} s"

    async def run(self) -> None:
        """Raises ProducerDeadError; what cannot be said now is said again later."""
        while True:
            self._due.clear()
            try:
                await self.publish()
            except ProducerDeadError:
                raise
            except KafkaError as error:
                log.warning("status_not_published", exc_info=error)
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._due.wait()
            except TimeoutError:
                continue

    def hurry(self) -> None:
        """Publishes without waiting for the interval to end: something changed that others wait for."""
        self._due.set()

    async def publish(self) -> None:
        """Once, and acknowledged."""
        for appended in await self._producer.send_all([status_record(status) for status in self._build()]):
            self._clock.observe(appended.timestamp)
            self._acknowledged_at = self._monotonic()


def status_record(status: FleetMessage) -> Outgoing:
    """A status as it stands on the fleet topic."""
    kind = ((headers.MESSAGE_TYPE, message_type(status).encode()),)
    return Outgoing(FLEET_TOPIC, encode(status), status.instance.encode(), kind)


class FleetLog(Protocol):
    """The fleet topic, from its last few hundred records: what is live is repeated every few seconds."""

    async def follow(self, timeout_s: float) -> Sequence[Record]:
        """The next records; empty when there are none within the time-out."""


class FleetView:
    """The newest status of everything that spoke within the last 12 s of log time."""

    def __init__(self, clock: LogClock) -> None:
        self._clock = clock
        self._newest: dict[tuple[str, ...], tuple[int, FleetStatus]] = {}

    async def run(self, log: FleetLog) -> None:
        """A component: keeps the picture current."""
        while True:
            self.add(await log.follow(FOLLOW_TIMEOUT_S))

    def add(self, records: Sequence[Record]) -> None:
        """Takes records in log order, and forgets what has expired."""
        for record in records:
            self._clock.observe(record.timestamp)
            status = _decode(record)
            if status is not None:
                key = _key(status)
                self._newest.pop(key, None)  # so that the dictionary stays in log order
                self._newest[key] = (record.timestamp, status)
        self._newest = {key: seen for key, seen in self._newest.items() if self._is_live(seen[0])}

    def of(self, kind: type[M]) -> list[M]:
        """All live statuses of a kind, in log order: of two that claim the same thing the later is right."""
        return [status for _, status in self.stamped(kind)]

    def stamped(self, kind: type[M]) -> list[tuple[int, M]]:
        """The same, each with the log time it was said at."""
        return [
            (at, status) for at, status in self._newest.values() if isinstance(status, kind) and self._is_live(at)
        ]

    def _is_live(self, timestamp_ms: int) -> bool:
        now = self._clock.now_ms()
        return now is not None and now - timestamp_ms <= EXPIRY_MS


def in_force(decisions: Sequence[ScalingDecision]) -> Mapping[str, ScalingDecision]:
    """By queue label, what the newest leader has decided: one that was replaced may not know it yet."""
    newest = max((decision.epoch for decision in decisions), default=0)
    return {decision.queue: decision for decision in decisions if decision.epoch == newest}


def _decode(record: Record) -> FleetStatus | None:
    """None for what this version does not know: newer services speak here too, and a status is soon repeated."""
    try:
        return FLEET.validate_json(record.value or b"")
    except ValidationError:
        return None


def _key(status: FleetStatus) -> tuple[str, ...]:
    match status:
        case WorkerStatus() | BreakerState():
            part: tuple[str, ...] = (status.model_class, status.backend)
        case Placement():
            part = (status.host,)
        case ScalingDecision():
            part = (status.queue,)
        case _:
            part = ()
    return (status.type, status.instance, *part)
