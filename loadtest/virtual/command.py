"""`python -m loadtest simulate`: the autoscaler's own code in virtual time, its figures beside published ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from loadtest.context import broken
from loadtest.machine import machine
from loadtest.virtual import ahead, burst, cascade, day, hybrid, predictive, tiers
from loadtest.virtual.verdicts import Verdict, verdicts

PARTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "cascade": cascade.measure,
    "tiers": tiers.measure,
    "predictive": predictive.measure,
    "hybrid": hybrid.measure,
    "burst": burst.measure,
    "ahead": ahead.measure,
    "day": day.measure,
}
out = Console()
told = Console(stderr=True)


def simulate(
    part: Annotated[list[str] | None, typer.Option(help=f"Only this: {', '.join(PARTS)}; again for more.")] = None,
    seed: Annotated[int, typer.Option(help="Of arrivals, service times and days.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the figures.")] = None,
    report_file: Annotated[Path | None, typer.Option("--report", help="Where to write a page with plots.")] = None,
    folder: Annotated[Path | None, typer.Option("--pictures", help="Where to write the plots, an SVG each.")] = None,
) -> None:
    """Example: python -m loadtest simulate --part cascade --part burst --json simulate.json"""
    unknown = set(part or ()) - set(PARTS)
    if unknown:
        raise typer.BadParameter(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    measured = {}
    for name in part or PARTS:
        told.print(f"simulate: {name}", markup=False)
        measured[name] = PARTS[name](seed)
    rows = verdicts(measured)
    out.print(_table(rows))
    promises = broken(**{row.measure: row.kept for row in rows})
    command = "python -m loadtest simulate" + "".join(f" --part {name}" for name in part or ())
    figures = {"scenario": "simulate", "command": command, "machine": machine(), "seed": seed, **measured, **promises}
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if report_file is not None:
        from loadtest.report.page import render  # heavy, and of no use to whoever wants figures

        report_file.write_text(render([figures]), encoding="utf-8")
    if folder is not None:
        from loadtest.report.scaling import pictures

        for name, text in pictures(figures).items():
            (folder / f"{name}.svg").write_text(text, encoding="utf-8")
    if not all(row.kept for row in rows):
        told.print("simulate: a promise is broken", style="red", markup=False)
        raise typer.Exit(1)


def _table(rows: list[Verdict]) -> Table:
    table = Table(title="simulate: what was published, and ours in virtual time")
    for column in ("measure", "paper", "ours", "promised", ""):
        table.add_column(column)
    for row in rows:
        table.add_row(row.measure, row.paper, row.ours, row.promised, "kept" if row.kept else "BROKEN")
    return table
