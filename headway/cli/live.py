"""The configuration in force and the revisions before it, read from their topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pydantic import ValidationError

from headway.cli.exits import CliError, Exit
from headway.cli.logs import Logs
from schemas.config import CURRENT_KEY, Bundle, CurrentRevision, Revision
from schemas.topics import CONFIG
from services.chassis.config.live import LiveConfig

NOTHING_APPLIED = "no configuration is applied: run `headway config apply`"


@dataclass(frozen=True)
class Applied:
    """What `config apply` has published so far; revisions that this version cannot read are left out."""

    revisions: Mapping[int, Revision]
    current: int | None

    @property
    def in_force(self) -> Revision | None:
        """None before the first apply."""
        return None if self.current is None else self.revisions.get(self.current)

    @property
    def newest(self) -> Revision | None:
        """The last one applied: after a rollback not the one in force."""
        return self.revisions[max(self.revisions)] if self.revisions else None

    @cached_property
    def live(self) -> LiveConfig:
        """The configuration in force, resolved; a CliError before the first apply."""
        if self.in_force is None:
            raise CliError(NOTHING_APPLIED, Exit.NOT_FOUND)
        return LiveConfig.of(self.in_force)

    @property
    def bundle(self) -> Bundle:
        """What is in force; nothing before the first apply."""
        return self.in_force.bundle if self.in_force else Bundle()


async def read_applied(logs: Logs) -> Applied:
    """The topic as it is now; nothing when there is no such topic."""
    values: dict[bytes, bytes | None] = {}
    async for record in logs.read(CONFIG, await logs.partitions(CONFIG)):
        values[record.key or b""] = record.value
    current = values.pop(CURRENT_KEY, None)
    revisions = [revision for value in values.values() if (revision := _revision(value)) is not None]
    return Applied(
        revisions={revision.revision: revision for revision in revisions},
        current=CurrentRevision.model_validate_json(current).revision if current else None,
    )


def _revision(value: bytes | None) -> Revision | None:
    try:
        return Revision.model_validate_json(value or b"")
    except ValidationError:
        return None
