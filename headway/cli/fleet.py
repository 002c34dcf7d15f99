"""The live fleet, as its statuses tell it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from headway.cli.logs import Logs
from schemas.topics import FLEET
from services.chassis.clock import LogClock
from services.chassis.fleet import PUBLISH_EVERY_S, FleetView

LOOK_BACK_RECORDS = 2_000
SILENCE_S = PUBLISH_EVERY_S + 2.0


async def follow_fleet(logs: Logs, clock: LogClock | None = None) -> AsyncIterator[FleetView]:
    """The picture after each status from now on.

    Only a status that arrives while we look proves that anything before it is fresh: the log has no clock of its own.
    """
    spans = await logs.spans(FLEET, await logs.partitions(FLEET))
    if not spans:
        return
    _, end = spans[0]
    view = FleetView(clock or LogClock())
    async for record in logs.read(FLEET, (0,), since={0: end - LOOK_BACK_RECORDS}, follow=True):
        view.add([record])
        if record.offset >= end:
            yield view


async def read_fleet(logs: Logs, clock: LogClock | None = None) -> FleetView:
    """The picture now; an empty one when nobody has spoken for 5 s. `clock` learns the log's time from it."""
    try:
        async with asyncio.timeout(SILENCE_S):
            async for view in follow_fleet(logs, clock):
                return view
    except TimeoutError:
        pass
    return FleetView(LogClock())
