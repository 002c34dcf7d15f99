"""Configuration revisions on their compacted topic: published whole, followed by every service.

A revision is a record of its own; `current` names the one in force. So an apply is atomic, and a rollback only
names an older one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import ValidationError

from schemas.config import CURRENT_KEY, REVISIONS_KEPT, Bundle, CurrentRevision, Revision, revision_key
from schemas.topics import CONFIG
from services.chassis.config.live import LiveConfig
from services.chassis.expressions import ExpressionError
from services.chassis.kafka.messages import encode
from services.chassis.kafka.types import Outgoing, Producer, Record
from services.chassis.logging import log

FOLLOW_TIMEOUT_S = 1.0


class ConfigLog(Protocol):
    """The config topic, from its earliest record."""

    async def read_to_end(self) -> Sequence[Record]:
        """Every record there is now."""

    async def follow(self, timeout_s: float) -> Sequence[Record]:
        """The next records; empty when there are none within the time-out."""


@dataclass
class Revisions:
    """What the topic amounts to: the revisions kept, and which one is in force."""

    by_number: dict[int, Revision] = field(default_factory=dict)
    current: int | None = None

    def add(self, record: Record) -> None:
        """Takes one more record. One that this version cannot read is passed over, and logged."""
        key = record.key or b""
        try:
            if key == CURRENT_KEY:
                self.current = CurrentRevision.model_validate_json(record.value or b"").revision
            elif not record.value:  # an old one, let go
                self.by_number.pop(_number(key), None)
            else:
                revision = Revision.model_validate_json(record.value)
                self.by_number[revision.revision] = revision
        except ValidationError as error:
            log.error("config_record_unreadable", offset=record.offset, exc_info=error)

    @property
    def in_force(self) -> Revision | None:
        """The current revision; None before the first apply, or when it cannot be read."""
        return self.by_number.get(self.current) if self.current is not None else None

    @property
    def next_number(self) -> int:
        """The number of the next revision: never one that was used before."""
        return max([*self.by_number, self.current or 0]) + 1


def _number(key: bytes) -> int:
    text = key.removeprefix(b"revision/")
    return int(text) if text.isdigit() else 0


class ConfigFollower:
    """Keeps the live configuration of a service. A revision it cannot use leaves the last one in force."""

    def __init__(self, source: ConfigLog, on_revision: Callable[[LiveConfig], None] | None = None) -> None:
        self._source = source
        self._on_revision = on_revision
        self._revisions = Revisions()
        self._live: LiveConfig | None = None

    @property
    def revision(self) -> int | None:
        """The revision in force here; None before the first."""
        return self._live.revision if self._live is not None else None

    @property
    def live(self) -> LiveConfig:
        """The configuration in force: an empty one before the first apply."""
        return self._live or LiveConfig(0, Bundle())

    def why_not_ready(self) -> str | None:
        """For readiness."""
        return None if self._live is not None else "no configuration yet: run `headway config apply DIR`"

    async def start(self) -> None:
        """Takes what is on the topic now."""
        self._take(await self._source.read_to_end())

    async def run(self) -> None:
        """A component: takes every further revision as it comes."""
        while True:
            self._take(await self._source.follow(FOLLOW_TIMEOUT_S))

    def _take(self, records: Sequence[Record]) -> None:
        for record in records:
            self._revisions.add(record)
        revision = self._revisions.in_force
        if records and revision is not None and revision.revision != self.revision:
            self._switch(revision)

    def _switch(self, revision: Revision) -> None:
        try:
            live = LiveConfig.of(revision)
        except ExpressionError as error:
            log.error("config_revision_unusable", revision=revision.revision, exc_info=error)
            return
        self._live = live
        log.info("config_in_force", revision=live.revision, pipelines=len(live.pipelines))
        if self._on_revision is not None:
            self._on_revision(live)


async def publish(producer: Producer, source: ConfigLog, bundle: Bundle, comment: str = "") -> int:
    """Appends a checked bundle as the next revision, then makes it current; its number."""
    revisions = await read(source)
    number = revisions.next_number
    await _append(producer, revision_key(number), encode(Revision(revision=number, bundle=bundle, comment=comment)))
    await _append(producer, CURRENT_KEY, encode(CurrentRevision(revision=number)))
    for old in sorted(revisions.by_number)[: -REVISIONS_KEPT + 1]:
        await _append(producer, revision_key(old), b"")
    return number


async def rollback(producer: Producer, source: ConfigLog, number: int) -> None:
    """Makes an older revision current. Raises LookupError, naming those that are kept."""
    revisions = await read(source)
    if number not in revisions.by_number:
        kept = ", ".join(map(str, sorted(revisions.by_number))) or "none"
        raise LookupError(f"no revision {number}; kept: {kept}")
    await _append(producer, CURRENT_KEY, encode(CurrentRevision(revision=number)))


async def read(source: ConfigLog) -> Revisions:
    """What is on the topic now."""
    revisions = Revisions()
    for record in await source.read_to_end():
        revisions.add(record)
    return revisions


async def _append(producer: Producer, key: bytes, value: bytes) -> None:
    await producer.send_all([Outgoing(CONFIG, value, key)])
