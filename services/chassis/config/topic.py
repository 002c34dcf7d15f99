"""The config topic: revisions published whole, and followed as configurations that are checked and compiled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic_core import to_json

from schemas.config import CURRENT_KEY, REVISIONS_KEPT, Bundle, CurrentRevision, Revision, revision_key
from schemas.topics import CONFIG
from services.chassis.config.live import LiveConfig
from services.chassis.config.problems import ConfigError
from services.chassis.config.revisions import ConfigLog, RevisionFollower, Revisions
from services.chassis.kafka.types import Outgoing, Producer, Record


class ConfigFollower(RevisionFollower[LiveConfig]):
    """Keeps a service on the revision in force. One that it cannot use is told once, and the last one stays."""

    def __init__(self, source: ConfigLog, on_revision: Callable[[LiveConfig], None] = lambda _: None) -> None:
        super().__init__(source, LiveConfig.of, LiveConfig(0, Bundle()), on_revision)


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
        self._revisions = Revisions()

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
