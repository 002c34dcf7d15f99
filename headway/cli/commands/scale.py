"""`headway scale status|explain`: how many workers each model class is to have, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.options import DEFAULT_HOME, AsJson, Home, example
from headway.cli.output import print_rows
from headway.cli.reach import complete, reach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.cli.scaling import ScaleRow
    from services.chassis.kafka.connection import Connection

app = typer.Typer(name="scale", help="How many workers each model class is to have, and why.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class TermRow:
    """One term of a decision."""

    term: str
    value: str
    how: str


@app.command(epilog=example("headway scale status"))
def status(home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """Show each queue's workers, those it is to have, and why, as the autoscaler that leads has decided."""
    print_rows(complete(_status(reach(home))), as_json=as_json, empty="no model class is configured")


@app.command(epilog=example("headway scale explain llm"))
def explain(
    queue: Annotated[str, typer.Argument(help="A model class, or class.backend for a further backend.")],
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Show each term of the decision about one queue, from the load to the number of workers."""
    print_rows(complete(_explain(reach(home), queue)), as_json=as_json, empty="")


async def _status(broker: Connection) -> Sequence[ScaleRow]:
    from headway.cli.fleet import read_fleet
    from headway.cli.live import read_applied
    from headway.cli.logs import open_logs
    from headway.cli.scaling import rows
    from schemas.fleet import ScalingDecision, WorkerStatus

    async with open_logs(broker) as logs:
        live = (await read_applied(logs)).live
        fleet = await read_fleet(logs)
    return rows(live.queues.values(), fleet.of(ScalingDecision), fleet.of(WorkerStatus))


async def _explain(broker: Connection, queue: str) -> Sequence[TermRow]:
    from headway.cli.fleet import read_fleet
    from headway.cli.logs import open_logs
    from headway.cli.scaling import terms
    from schemas.fleet import ScalingDecision

    async with open_logs(broker) as logs:
        fleet = await read_fleet(logs)
    return [TermRow(term.term, term.value, term.how) for term in terms(queue, fleet.of(ScalingDecision))]
