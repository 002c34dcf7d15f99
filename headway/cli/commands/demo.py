"""`headway demo`: what `make demo` runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.exits import CliError, Exit
from headway.cli.options import example

app = typer.Typer()

HOME = Path(".headway/demo")


@app.command(epilog=example("headway demo"))
def demo(
    home: Annotated[Path, typer.Option(file_okay=False, help="Its plane's folder; the next start is faster.")] = HOME,
) -> None:
    """Watch real questions go through the whole loop.

    Starts a real Kafka, a real Valkey, the services and small real models; asks, floods, and stops everything.
    Exits 0 only if every run ended as it should.
    """
    from headway.cli.demo import demonstrate
    from headway.cli.embedded import run_foreground
    from headway.cli.folders import default_folder

    began = time.monotonic()
    shown = run_foreground(demonstrate(home, default_folder()))
    if shown is None:
        raise CliError("the demo was stopped before its end", Exit.INTERRUPTED)
    if shown.faults:
        raise CliError(f"{len(shown.faults)} of {shown.runs} runs did not end as they should", Exit.PROBLEMS)
    print(f"\n{shown.runs} runs, each ended as it should, in {time.monotonic() - began:.0f} s in all.")
    print('Next: `headway up`, then `headway submit ask --input \'{"question": "…"}\'` in another terminal.')
