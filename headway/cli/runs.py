"""A run's events, found in the log by the run's id or its request's."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection

from pydantic import ValidationError

from headway.cli.exits import CliError, Exit
from headway.cli.logs import Logs
from headway.cli.timeline import Timeline, timeline
from schemas import ids
from schemas.events import EVENT, Event
from schemas.topics import EVENTS
from services.chassis.kafka.records import partition_of
from services.chassis.kafka.types import Record

_RUN_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def run_ids(name: str, tenant: str) -> tuple[str, ...]:
    """What `name` may mean: a run id, or the tenant's request of that id."""
    return (name, ids.run_id(tenant, name))


def future_run_ids(name: str, tenant: str) -> tuple[str, ...]:
    """What a run may be called that the log does not know yet: where `name` has the shape of a run id, both."""
    return run_ids(name, tenant) if _RUN_ID.fullmatch(name) else (ids.run_id(tenant, name),)


async def read_run(logs: Logs, run_ids: Collection[str]) -> Timeline | None:
    """The newest of these runs' timelines as the log is now; None if it knows none of them."""
    events: dict[str, list[tuple[int, Event]]] = {run_id: [] for run_id in run_ids}
    async for run_id, stamp, event in _events(logs, run_ids, follow=False):
        events[run_id].append((stamp, event))
    return next((found for told in events.values() if (found := timeline(told))), None)


async def follow_run(logs: Logs, run_ids: Collection[str]) -> AsyncIterator[Timeline]:
    """The timeline after each event of the run, until it has ended."""
    told: dict[str, list[tuple[int, Event]]] = {run_id: [] for run_id in run_ids}
    async for run_id, stamp, event in _events(logs, run_ids, follow=True):
        told[run_id].append((stamp, event))
        if (current := timeline(told[run_id])) is not None:
            yield current
            if current.response is not None:
                return


async def _events(logs: Logs, run_ids: Collection[str], *, follow: bool) -> AsyncIterator[tuple[str, int, Event]]:
    """Only the partitions that can hold them are read, and only their own records are decoded."""
    count = len(await logs.partitions(EVENTS))
    if not count:
        raise CliError(f"the broker has no topic {EVENTS}: run `headway topics apply`", Exit.UNREACHABLE)
    partitions = {partition_of(run_id.encode(), count) for run_id in run_ids}
    async for record in logs.read(EVENTS, partitions, follow=follow):
        run_id = (record.key or b"").decode(errors="replace")
        if run_id in run_ids and (event := _decoded(record)) is not None:
            yield run_id, record.timestamp, event


def _decoded(record: Record) -> Event | None:
    """None for what is no event, as the fold sees it."""
    try:
        return EVENT.validate_json(record.value or b"")
    except ValidationError:
        return None
