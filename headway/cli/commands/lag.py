"""`headway lag`: how far behind each class and lane is, in tasks and in seconds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.options import DEFAULT_HOME, AsJson, Home, example
from headway.cli.output import console, print_rows, table
from headway.cli.reach import complete, reach

if TYPE_CHECKING:
    from headway.cli.backlog import LaneLag
    from services.autoscaler.collector import Collector, Sample
    from services.chassis.kafka.connection import Connection

app = typer.Typer()

REFRESH_S = 1.0
TIMEOUT_S = 15.0
EMPTY = "no model class is configured: run `headway config apply`"


@app.command(epilog=example("headway lag --watch"))
def lag(
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until Ctrl-C.")] = False,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Show how far behind each model class and lane is.

    In tasks; in seconds since the oldest of them was appended; and in seconds of work for the slots there are. What
    cannot be read is `–` (null in JSON), never 0.
    """
    broker = reach(home)
    if watch:
        complete(_watch(broker, as_json=as_json))
    else:
        print_rows(complete(read_lag(broker)), as_json=as_json, empty=EMPTY)


async def read_lag(broker: Connection) -> list[LaneLag]:
    """Every lane of every queue, now."""
    async with looking(broker) as look:
        return await look()


@asynccontextmanager
async def looking(broker: Connection) -> AsyncIterator[Callable[[], Awaitable[list[LaneLag]]]]:
    """Connects; the function looks at every lane of every queue, as the autoscaler does."""
    from headway.cli.backlog import lane_lags
    from headway.cli.fleet import read_fleet
    from headway.cli.live import read_applied
    from headway.cli.logs import open_logs
    from schemas.fleet import WorkerStatus
    from services.autoscaler.collector import Collector
    from services.autoscaler.domain.replicas import own
    from services.autoscaler.domain.watched import Watched
    from services.chassis.clock import LogClock
    from services.chassis.kafka.offsets import KafkaOffsetReader

    clock = LogClock()
    async with open_logs(broker) as logs, KafkaOffsetReader(broker, TIMEOUT_S) as reader:
        collector = Collector(reader, clock)

        async def look() -> list[LaneLag]:
            collector.watch(Watched.of((await read_applied(logs)).live.bundle))
            workers = (await read_fleet(logs, clock)).of(WorkerStatus)
            sample = await _patiently(collector)
            return [
                row
                for queue in sample.watched.queues
                for row in lane_lags(queue, sample.lanes(queue), own(queue, workers))
            ]

        yield look


async def _patiently(collector: Collector) -> Sample:
    """A broker that has just started does not tell at once."""
    from asyncio import get_running_loop, sleep

    from services.chassis.kafka.types import KafkaError

    loop = get_running_loop()
    give_up_at = loop.time() + TIMEOUT_S
    while True:
        try:
            return await collector.sample()
        except KafkaError:
            if loop.time() > give_up_at:
                raise
        await sleep(REFRESH_S)


async def _watch(broker: Connection, *, as_json: bool) -> None:
    """A terminal shows one table that changes; a pipe gets one after the other."""
    from asyncio import sleep

    from rich.live import Live

    screen = console()
    live = Live(console=screen, auto_refresh=False) if screen.is_terminal and not as_json else None
    async with looking(broker) as look:
        while True:
            rows = await look()
            if live is None:
                print_rows(rows, as_json=as_json, empty=EMPTY)
            elif rows:
                live.start()
                live.update(table(rows), refresh=True)
            await sleep(REFRESH_S)
