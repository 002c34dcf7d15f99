"""`headway serve NAME` and `headway worker`: one service in the foreground, as containers run it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import typer

from headway.cli.options import example

app = typer.Typer()

Config = Annotated[
    Path | None,
    typer.Option(
        envvar="HEADWAY_CONFIG", file_okay=False, exists=True, help="Folder with settings.yaml and functions/."
    ),
]


@app.command(epilog=example("headway serve orchestrator"))
def serve(
    service: Annotated[
        Literal["orchestrator", "aggregator", "autoscaler", "host"], typer.Argument(help="Which one.")
    ],
    config: Config = None,
) -> None:
    """Run one service until SIGTERM.

    It finds its broker and store by HEADWAY_… variables.
    """
    raise typer.Exit(import_module(f"services.{service}.app").main(config))


@app.command(epilog=example("headway worker --model-class embedding"))
def worker(
    model_class: Annotated[list[str], typer.Option(help="`class` or `class.backend`; may be repeated.")],
    config: Config = None,
) -> None:
    """Run one worker for one or more model classes."""
    from services.worker.app import main

    raise typer.Exit(main(model_class, config))
