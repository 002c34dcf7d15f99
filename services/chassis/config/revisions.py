"""Configuration revisions as they stand on their compacted topic, and how a service stays on the one in force.

A revision is a record of its own; `current` names the one in force. So an apply is atomic, and a rollback only names
an older one. What a service makes of a revision is its own affair: a worker needs its queues, and neither CEL nor
JSON Schema.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from pydantic import ValidationError

from schemas.config import CURRENT_KEY, CurrentRevision, Revision
from schemas.models import Queue, queues
from services.chassis.config.problems import ConfigError
from services.chassis.kafka.types import Record
from services.chassis.logging import log, reason

FOLLOW_TIMEOUT_S = 1.0

T = TypeVar("T")


class ConfigLog(Protocol):
    """The config topic, from its earliest record; each record is read once."""

    async def read_to_end(self) -> Sequence[Record]:
        """Every further record up to the end as it is now. Raises KafkaError when that takes too long."""

    async def follow(self, timeout_s: float) -> Sequence[Record]:
        """The next records; empty when there are none within the time-out."""


@dataclass(slots=True)
class Revisions:
    """What the topic amounts to."""

    records: dict[int, Record] = field(default_factory=dict)
    """By revision; read when they are asked for, since this version need not understand all of them."""
    current: int | None = None

    def add(self, records: Iterable[Record]) -> bool:
        """Whether one of them said which revision is in force."""
        switched = False
        for record in records:
            if record.key == CURRENT_KEY:
                switched = self._switch(record) or switched
            elif (number := _number(record.key or b"")) is not None:
                self.records[number] = record
                if not record.value:  # an old one, let go
                    del self.records[number]
        return switched

    def _switch(self, record: Record) -> bool:
        try:
            self.current = CurrentRevision.model_validate_json(record.value or b"").revision
        except ValidationError as error:
            log.error("config_record_unreadable", offset=record.offset, exc_info=error)
            return False
        return True

    def read(self, number: int) -> Revision:
        """Raises ConfigError for one that is not kept, or that this version cannot read."""
        if number not in self.records:
            kept = ", ".join(map(str, sorted(self.records))) or "none"
            raise ConfigError(f"there is no revision {number}; kept: {kept}")
        try:
            return Revision.model_validate_json(self.records[number].value or b"")
        except ValidationError as error:
            raise ConfigError(f"revision {number} cannot be read: {reason(error)}") from None


def _number(key: bytes) -> int | None:
    number = key.removeprefix(b"revision/")
    return int(number) if number != key and number.isdigit() else None


class RevisionFollower(Generic[T]):
    """Keeps a service on the revision in force. One that it cannot use is told once, and the last one stays."""

    def __init__(
        self,
        source: ConfigLog,
        read: Callable[[Revision], T],
        empty: T,
        on_revision: Callable[[T], None] = lambda _: None,
    ) -> None:
        """`read` makes of a revision what the service uses, or raises ConfigError; `empty` is that of none."""
        self._source = source
        self._read = read
        self._on_revision = on_revision
        self._revisions = Revisions()
        self._live = empty
        self._number: int | None = None
        self._first = asyncio.Event()

    @property
    def revision(self) -> int | None:
        """The revision in force here; None before the first."""
        return self._number

    @property
    def live(self) -> T:
        """What is in force: the empty configuration before the first apply."""
        return self._live

    def why_not_ready(self) -> str | None:
        """For readiness."""
        return None if self._number is not None else "no configuration yet: run `headway config apply`"

    async def first(self) -> T:
        """Waits for a configuration: some services have nothing to do without one."""
        await self._first.wait()
        return self.live

    async def start(self) -> None:
        """Takes what is on the topic now. Raises KafkaError."""
        self._take(await self._source.read_to_end())

    async def run(self) -> None:
        """A component: takes every further revision as it comes."""
        while True:
            self._take(await self._source.follow(FOLLOW_TIMEOUT_S))

    def _take(self, records: Sequence[Record]) -> None:
        """Of several switches at once only the last counts."""
        switched, number = self._revisions.add(records), self._revisions.current
        if not switched or number is None or number == self.revision:
            return
        try:
            revision = self._revisions.read(number)
            self._live = self._read(revision)
        except ConfigError as error:
            log.error("config_revision_unusable", revision=number, kept=self.revision, reason=str(error))
            return
        self._number = number
        log.info("config_in_force", revision=number, pipelines=len(revision.bundle.pipelines))
        self._first.set()
        self._on_revision(self._live)


class QueueFollower(RevisionFollower[Sequence[Queue]]):
    """What hosts use of a revision: its queues."""

    def __init__(self, source: ConfigLog, on_revision: Callable[[Sequence[Queue]], None] = lambda _: None) -> None:
        super().__init__(source, lambda revision: list(queues(revision.bundle.model_classes)), (), on_revision)
