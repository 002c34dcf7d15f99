"""Configuration revisions on their compacted topic: published whole, followed by every service.

A revision is a record of its own; `current` names the one in force. So an apply is atomic, and a rollback only names
an older one.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import ValidationError
from pydantic_core import to_json

from schemas.config import CURRENT_KEY, REVISIONS_KEPT, Bundle, CurrentRevision, Revision, revision_key
from schemas.topics import CONFIG
from services.chassis.config.live import ConfigError, LiveConfig
from services.chassis.kafka.types import Outgoing, Producer, Record
from services.chassis.logging import log, reason

FOLLOW_TIMEOUT_S = 1.0
_NOTHING = LiveConfig(0, Bundle())


class ConfigLog(Protocol):
    """The config topic, from its earliest record; each record is read once."""

    async def read_to_end(self) -> Sequence[Record]:
        """Every further record up to the end as it is now. Raises KafkaError when that takes too long."""

    async def follow(self, timeout_s: float) -> Sequence[Record]:
        """The next records; empty when there are none within the time-out."""


@dataclass(slots=True)
class _Revisions:
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


class ConfigFollower:
    """Keeps a service on the revision in force. One that it cannot use is told once, and the last one stays."""

    def __init__(self, source: ConfigLog, on_revision: Callable[[LiveConfig], None] = lambda _: None) -> None:
        self._source = source
        self._on_revision = on_revision
        self._revisions = _Revisions()
        self._live: LiveConfig | None = None
        self._first = asyncio.Event()

    @property
    def revision(self) -> int | None:
        """The revision in force here; None before the first."""
        return self._live.revision if self._live is not None else None

    @property
    def live(self) -> LiveConfig:
        """The configuration in force: an empty one before the first apply."""
        return self._live or _NOTHING

    def why_not_ready(self) -> str | None:
        """For readiness."""
        return None if self._live is not None else "no configuration yet: run `headway config apply`"

    async def first(self) -> LiveConfig:
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
            self._live = LiveConfig.of(self._revisions.read(number))
        except ConfigError as error:
            log.error("config_revision_unusable", revision=number, kept=self.revision, reason=str(error))
            return
        log.info("config_in_force", revision=number, pipelines=len(self._live.pipelines))
        self._first.set()
        self._on_revision(self._live)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A revision that is kept."""

    revision: int
    applied_at_ms: int
    """The timestamp of its record."""
    comment: str | None
    """None for a revision that this version cannot read."""
    current: bool


class ConfigHistory:
    """Publishes revisions, looks back on them and returns to them: what people do by hand, one at a time."""

    def __init__(self, source: ConfigLog, producer: Producer) -> None:
        """`source` has not been read yet."""
        self._source = source
        self._producer = producer
        self._revisions = _Revisions()

    async def current(self) -> Revision | None:
        """The revision in force; None before the first. Raises ConfigError if it cannot be read."""
        await self._catch_up()
        number = self._revisions.current
        return None if number is None else self._revisions.read(number)

    async def entries(self) -> list[HistoryEntry]:
        """The revisions that are kept, the newest first."""
        await self._catch_up()
        return [self._entry(number) for number in sorted(self._revisions.records, reverse=True)]

    async def publish(self, bundle: Bundle, comment: str = "") -> int:
        """Makes a checked bundle the revision in force; its number. The last 50 are kept.

        Raises ConfigError for a bundle with an error in it, and when somebody else publishes at the same time;
        RecordTooLargeError.
        """
        await self._catch_up()
        number = max([*self._revisions.records, self._revisions.current or 0]) + 1
        LiveConfig(number, bundle)
        revision = Revision(revision=number, bundle=bundle, comment=comment)
        offset = await self._append(revision_key(number), to_json(revision))
        if any(record.offset != offset for record in await self._catch_up()):
            raise ConfigError("somebody else applied a configuration at the same time: compare, then apply again")
        await self._append(CURRENT_KEY, to_json(CurrentRevision(revision=number)))
        for old in sorted(self._revisions.records)[:-REVISIONS_KEPT]:
            await self._append(revision_key(old), None)
        return number

    async def rollback(self, number: int) -> None:
        """Makes an older revision the one in force. Raises ConfigError if it is not kept, or cannot be used."""
        await self._catch_up()
        LiveConfig.of(self._revisions.read(number))
        await self._append(CURRENT_KEY, to_json(CurrentRevision(revision=number)))

    async def _catch_up(self) -> Sequence[Record]:
        """What came since the last time."""
        records = await self._source.read_to_end()
        self._revisions.add(records)
        return records

    def _entry(self, number: int) -> HistoryEntry:
        try:
            comment: str | None = self._revisions.read(number).comment
        except ConfigError:
            comment = None
        timestamp = self._revisions.records[number].timestamp
        return HistoryEntry(number, timestamp, comment, number == self._revisions.current)

    async def _append(self, key: bytes, value: bytes | None) -> int:
        (appended,) = await self._producer.send_all([Outgoing(CONFIG, value, key)])
        return appended.offset
