"""`headway run show|watch|cancel`: one run, from the log."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.exits import CliError, Exit
from headway.cli.options import DEFAULT_HOME, AsJson, Home, example
from headway.cli.output import console, print_json, say
from headway.cli.reach import complete, reach

if TYPE_CHECKING:
    from headway.cli.timeline import Timeline
    from services.chassis.kafka.connection import Connection

app = typer.Typer(name="run", help="A run: its timeline, live or after the fact.", no_args_is_help=True)

RunOrRequest = Annotated[str, typer.Argument(metavar="ID", help="A run id, or a request id of the tenant.")]
Tenant = Annotated[str, typer.Option(help="Whose request id it is.")]


@app.command(epilog=example("headway run show 0f9f3a6e-1c7f-5a0e-9d57-0c5f0e6b8a11"))
def show(name: RunOrRequest, tenant: Tenant = "default", home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """Draw the run's waterfall, the parts of its critical path, and its cost by step and model class."""
    run = complete(_show(reach(home), name, tenant))
    if as_json:
        print_json(to_json(run))
    else:
        draw(run)


@app.command(epilog=example("headway run watch my-request"))
def watch(name: RunOrRequest, tenant: Tenant = "default", home: Home = DEFAULT_HOME) -> None:
    """Follow a run until it ends."""
    complete(_watch(reach(home), name, tenant))


@app.command(epilog=example("headway run cancel my-request"))
def cancel(name: RunOrRequest, tenant: Tenant = "default", home: Home = DEFAULT_HOME) -> None:
    """Ask for a run to stop: what is queued is dropped, what runs is aborted.

    A request that has not become a run yet is cancelled as soon as it does.
    """
    cancelled = complete(_cancel(reach(home), name, tenant))
    say(f"asked run {' or '.join(cancelled)} to stop")


async def _show(broker: Connection, name: str, tenant: str) -> Timeline:
    from headway.cli.logs import open_logs
    from headway.cli.runs import read_run, run_ids

    async with open_logs(broker) as logs:
        run = await read_run(logs, run_ids(name, tenant))
    if run is None:
        raise CliError(f"the log knows no run {name}, and no request {name} of tenant {tenant}", Exit.NOT_FOUND)
    return run


async def _watch(broker: Connection, name: str, tenant: str) -> None:
    """A terminal shows one picture that grows; a pipe gets the last one."""
    from rich.console import Group
    from rich.live import Live

    from headway.cli.logs import open_logs
    from headway.cli.runs import follow_run, run_ids
    from headway.cli.waterfall import waterfall

    say(f"waiting for the end of {name}; Ctrl-C stops watching, not the run")
    screen = console()
    with Live(console=screen, auto_refresh=False) as live:
        async with open_logs(broker) as logs:
            async for run in follow_run(logs, run_ids(name, tenant)):
                live.update(Group(*waterfall(run)), refresh=True)


async def _cancel(broker: Connection, name: str, tenant: str) -> tuple[str, ...]:
    """Appends the wish to the log; the run's id, or what it will be once it has started."""
    from headway.cli.logs import open_logs
    from headway.cli.runs import future_run_ids, read_run, run_ids
    from schemas.events import RunCancelled
    from schemas.topics import EVENTS
    from services.chassis.kafka.aiokafka_adapter import AioKafkaProducer
    from services.chassis.kafka.messages import run_record

    async with open_logs(broker) as logs:
        run = await read_run(logs, run_ids(name, tenant))
    if run is not None and run.response is not None:
        raise CliError(f"run {run.run_id} is over: {run.status}", Exit.PROBLEMS)
    wanted = future_run_ids(name, tenant) if run is None else (run.run_id,)
    producer = AioKafkaProducer(broker)
    await producer.start()
    try:
        for run_id in wanted:
            event = RunCancelled(run_id=run_id, tenant=tenant, cancelled_by="headway run cancel")
            await producer.send_all([run_record(EVENTS, event)])
    finally:
        await producer.stop()
    return wanted


def draw(run: Timeline) -> None:
    """Prints the waterfall."""
    from headway.cli.waterfall import waterfall

    screen = console()
    for part in waterfall(run):
        screen.print(part)


def to_json(run: Timeline) -> dict[str, object]:
    """The timeline as plain values, with its sums per step, the parts of its critical path, and its cost."""
    from headway.cli.accounts import cost_by, stretches

    steps = [
        asdict(step) | {"cold_ms": step.cold_ms, "queue_ms": step.queue_ms, "service_ms": step.service_ms}
        for step in run.steps
    ]
    return asdict(run) | {
        "steps": steps,
        "stretches": [asdict(stretch) for stretch in stretches(run)],
        "cost_by_step": cost_by(run, lambda charge: charge.step),
        "cost_by_class": cost_by(run, lambda charge: charge.model_class),
    }
