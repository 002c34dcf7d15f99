"""`headway lag`: how far behind each class and lane is, in tasks and in seconds of work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.options import DEFAULT_HOME, AsJson, Home, example
from headway.cli.output import console, print_rows, table
from headway.cli.reach import complete, reach

if TYPE_CHECKING:
    from collections.abc import Collection

    from headway.cli.backlog import LaneLag
    from schemas.fleet import WorkerStatus
    from schemas.models import Queue
    from services.chassis.kafka.admin import Admin
    from services.chassis.kafka.connection import Connection

app = typer.Typer()

REFRESH_S = 1.0
EMPTY = "no model class is configured: run `headway config apply`"


@app.command(epilog=example("headway lag --watch"))
def lag(
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until Ctrl-C.")] = False,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Show how far behind each model class and lane is.

    In tasks, and in seconds of work for the slots there are. What cannot be read is `?` (null in JSON), never 0.
    """
    broker = reach(home)
    if watch:
        complete(_watch(broker, as_json=as_json))
    else:
        print_rows(complete(read_lag(broker)), as_json=as_json, empty=EMPTY)


async def read_lag(broker: Connection) -> list[LaneLag]:
    """Every lane of every queue, now."""
    from headway.cli.fleet import read_fleet
    from headway.cli.live import read_applied
    from headway.cli.logs import open_logs
    from schemas.fleet import WorkerStatus
    from services.chassis.kafka.admin import Admin

    async with open_logs(broker) as logs, Admin(broker) as admin:
        live = (await read_applied(logs)).live
        workers = (await read_fleet(logs)).of(WorkerStatus)
        rows = [await lags_of(queue, workers, admin) for queue in live.queues.values()]
    return [row for lanes in rows for row in lanes]


async def lags_of(queue: Queue, workers: Collection[WorkerStatus], admin: Admin) -> list[LaneLag]:
    """The lanes of one queue."""
    from headway.cli.backlog import lane_lags

    found = await admin.lag(queue.group, [queue.topic])
    behind = {tp.partition: None if at.committed is None else at.end - at.committed for tp, at in found.items()}
    own = [w for w in workers if (w.model_class, w.backend) == (queue.model_class, queue.backend)]
    return list(lane_lags(queue, behind, own))


async def _watch(broker: Connection, *, as_json: bool) -> None:
    """A terminal shows one table that changes; a pipe gets one after the other."""
    from asyncio import sleep

    from rich.live import Live

    screen = console()
    live = Live(console=screen, auto_refresh=False) if screen.is_terminal and not as_json else None
    while True:
        rows = await read_lag(broker)
        if live is None:
            print_rows(rows, as_json=as_json, empty=EMPTY)
        elif rows:
            live.start()
            live.update(table(rows), refresh=True)
        await sleep(REFRESH_S)
