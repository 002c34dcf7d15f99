"""`python -m loadtest SCENARIO`: runs one, prints a table, writes `--json` and `--report`; exit 1: a broken promise.

`python -m loadtest report a.json b.json --out page.html` makes one page of several; `bench` measures nearly all.
"""

import asyncio
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from headway.plane.errors import PlaneError
from loadtest.bench import bench as measure_all
from loadtest.bench import read
from loadtest.context import BROKEN, ONE_MACHINE, Context, Scenario
from loadtest.generator import Load
from loadtest.machine import machine
from loadtest.measure import SERIES
from loadtest.nemesis import clocks
from loadtest.plane import plane
from loadtest.repeats import combined
from loadtest.report.readme import write_into
from loadtest.scenarios import (
    breaker,
    burst,
    chaos,
    coldstart,
    drain,
    enterprise,
    fanout,
    floor,
    flush,
    freeze,
    growth,
    isolation,
    open_runs,
    outage,
    peers,
    poison,
    rolling,
    scaleout,
    sequential,
    soak,
)
from loadtest.virtual.command import simulate
from schemas.durations import parse_duration_ms

SCENARIOS = {
    "floor": Scenario(floor.run, repeatable=True),
    "fanout": Scenario(fanout.run, env=ONE_MACHINE, repeatable=True),
    "isolation": Scenario(isolation.run, config=isolation.CONFIG),
    "scaleout": Scenario(scaleout.run, config=scaleout.CONFIG, repeatable=True),
    "sequential": Scenario(sequential.run, config=sequential.CONFIG, repeatable=True),
    "enterprise": Scenario(enterprise.run, config=enterprise.CONFIG, repeatable=True),
    "peers": Scenario(peers.run, env=ONE_MACHINE, repeatable=True),
    "burst": Scenario(burst.run, burst.REPLICAS, burst.CONFIG, burst.ENVIRONMENT, repeatable=True),
    "coldstart": Scenario(coldstart.run, {"autoscaler": 1}, coldstart.CONFIG, coldstart.ENVIRONMENT, repeatable=True),
    "growth": Scenario(growth.run, config=growth.CONFIG, env=growth.ENVIRONMENT),
    "soak": Scenario(soak.run, env=soak.ENVIRONMENT),
    "rolling": Scenario(rolling.run),
    "flush": Scenario(flush.run),
    "freeze": Scenario(freeze.run),
    "open_runs": Scenario(open_runs.run, replicas={"aggregator": 2}),
    "breaker": Scenario(breaker.run, config=breaker.CONFIG),
    "outage": Scenario(outage.run, config=outage.CONFIG),
    "poison": Scenario(poison.run, config=poison.CONFIG),
    "drain": Scenario(drain.run, config=drain.CONFIG),
    "chaos": Scenario(chaos.run, chaos.REPLICAS, chaos.CONFIG, clocks.environment()),
}

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Load tests: each starts a plane of its own.")
ELSEWHERE = ("home", "json_file", "report_file")
"""Options that change nothing about what is measured."""
out = Console()
told = Console(stderr=True)


def main(
    command: typer.Context,
    rate: Annotated[float | None, typer.Option(min=0.1, max=100_000, help="Arrivals a second (open loop).")] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=10_000, help="Callers (closed loop).")] = 1,
    duration: Annotated[str, typer.Option(help="How long is measured, like 20s.")] = "20s",
    warm_up: Annotated[str, typer.Option(help="How long load is made before that.")] = "1s",
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Measurements on one plane; figures are medians.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the arrivals and faults.")] = 0,
    home: Annotated[Path | None, typer.Option(help="Home of a plane that is up; else one is started.")] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="How many chaos makes, wait in isolation, are open in growth.")
    ] = None,
    faults: Annotated[int | None, typer.Option(min=0, help="How many chaos makes; default 300.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the figures.")] = None,
    report_file: Annotated[Path | None, typer.Option("--report", help="Where to write a page with plots.")] = None,
) -> None:
    """Example: python -m loadtest fanout --concurrency 64 --duration 20s --repeats 5 --json out.json"""
    scenario = str(command.command.name)
    if repeats > 1 and not SCENARIOS[scenario].repeatable:
        raise typer.BadParameter(f"{scenario} changes the plane it runs on, and cannot be repeated on it")
    load = Load(_seconds(duration), rate, concurrency, seed, _seconds(warm_up))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            figures = runner.run(_run(scenario, load, home, requests, faults, repeats))
    except PlaneError as error:
        told.print(f"loadtest: {error}", style="red", markup=False)
        raise typer.Exit(1) from None
    figures = {"command": _command(command), **figures}
    _show(figures)
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if report_file is not None:
        _write_page(report_file, [figures])
    if figures.get(BROKEN):
        told.print(f"loadtest: broken: {', '.join(figures[BROKEN])}", style="red", markup=False)
        raise typer.Exit(1)


@app.command()
def report(
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="What --json wrote.")],
    page_file: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("report.html"),
    readme_file: Annotated[
        Path | None, typer.Option("--readme", exists=True, dir_okay=False, help="A file with the table to renew.")
    ] = None,
) -> None:
    """One page with the plots of several scenarios; it needs no network."""
    _publish(read(files), page_file, readme_file)


@app.command()
def bench(
    folder: Annotated[Path, typer.Option(help="Where the figures and the page go.")] = Path("bench"),
    readme_file: Annotated[
        Path | None, typer.Option("--readme", exists=True, dir_okay=False, help="A file with the table to renew.")
    ] = None,
) -> None:
    """Every scenario but soak and those of scaling and failures: under 25 minutes, a page, and the README's table."""
    runs, failed = measure_all(folder)
    _publish(runs, folder / "report.html", readme_file)
    if failed:
        told.print(f"loadtest: failed or broken: {'; '.join(failed)}", style="red", markup=False)
        raise typer.Exit(1)


for name, each in SCENARIOS.items():
    app.command(name, help=each.purpose)(main)
app.command("simulate", help="The autoscaler's own code in virtual time, beside published figures.")(simulate)


async def _run(
    scenario: str, load: Load, home: Path | None, requests: int | None, faults: int | None, repeats: int
) -> dict[str, Any]:
    logging.disable(logging.ERROR)  # what clients say of a broker that is away on purpose
    chosen = SCENARIOS[scenario]
    made: list[dict[str, Any]] = []
    async with plane(home, chosen) as its_home:
        for number in range(1, repeats + 1):
            if repeats > 1:
                say(f"{scenario}: {number} of {repeats}")
            made.append(await chosen.run(Context(load, its_home, say, requests, faults)))
    figures = combined(made)
    if home is None:
        if figures.get(BROKEN):
            say(f"loadtest: logs and data are in {its_home}")
        else:
            shutil.rmtree(its_home, ignore_errors=True)
    settings = {"rate_per_s": load.rate_per_s, "concurrency": load.concurrency if load.rate_per_s is None else None}
    return {"scenario": scenario, "machine": machine(), **settings, **figures}


def say(text: str) -> None:
    """Tells people what goes on."""
    told.print(text, markup=False)


def _publish(runs: Sequence[dict[str, Any]], page_file: Path, readme_file: Path | None) -> None:
    _write_page(page_file, runs)
    if readme_file is not None:
        try:
            write_into(readme_file, runs)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None


def _write_page(file: Path, runs: Sequence[dict[str, Any]]) -> None:
    from loadtest.report.page import render  # heavy, and of no use while load is made

    file.write_text(render(runs), encoding="utf-8")


def _command(context: typer.Context) -> str:
    """What to type to measure this again, without where the figures went."""
    said = [
        f" {option.opts[0]} {context.params[option.name]}"
        for option in context.command.params
        if option.name and option.name not in ELSEWHERE and context.params[option.name] != option.default
    ]
    return f"python -m loadtest {context.command.name}{''.join(said)}"


def _seconds(duration: str) -> float:
    try:
        return parse_duration_ms(duration) / 1_000
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _show(figures: dict[str, Any]) -> None:
    """A row a figure; of several repeats with the least and the greatest."""
    spread = dict(_flat("", figures.get("spread", {})))
    table = Table(title=str(figures["scenario"]))
    for column in ("figure", "value", *(["least – greatest"] if spread else [])):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for name, value in _flat("", figures):
        extremes = " – ".join(map(str, spread.get(name, ())))
        table.add_row(name, str(value), *([extremes] if spread else []))
    out.print(table)


def _flat(prefix: str, figures: dict[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in figures.items():
        if name in (SERIES, "repeats", "spread"):
            continue
        rows.extend(_flat(f"{prefix}{name}.", value) if isinstance(value, dict) else [(f"{prefix}{name}", value)])
    return rows


if __name__ == "__main__":
    app()
