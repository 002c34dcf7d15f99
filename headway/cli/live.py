"""The configuration in force, read from its topic."""

from __future__ import annotations

from headway.cli.exits import CliError, Exit
from headway.cli.logs import Logs
from schemas.config import CURRENT_KEY, Bundle, CurrentRevision, Revision
from schemas.topics import CONFIG

NOTHING_APPLIED = "no configuration is applied: run `headway config apply`"


async def live_revision(logs: Logs) -> Revision | None:
    """The revision in force; None before the first."""
    revisions: dict[int, Revision] = {}
    current: int | None = None
    async for record in logs.read(CONFIG, await logs.partitions(CONFIG)):
        if record.key == CURRENT_KEY and record.value:
            current = CurrentRevision.model_validate_json(record.value).revision
        elif record.value:
            revision = Revision.model_validate_json(record.value)
            revisions[revision.revision] = revision
    return None if current is None else revisions.get(current)


async def require_live(logs: Logs) -> Bundle:
    """What is in force; a CliError before the first `config apply`."""
    revision = await live_revision(logs)
    if revision is None:
        raise CliError(NOTHING_APPLIED, Exit.NOT_FOUND)
    return revision.bundle
