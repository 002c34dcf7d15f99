"""`headway up`: the embedded plane in the foreground."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headway.cli.options import DEFAULT_HOME, Home, example
from headway.cli.output import say

if TYPE_CHECKING:
    from headway.cli.embedded import EmbeddedPlane
    from headway.cli.progress import StartProgress

app = typer.Typer()


@app.command(epilog=example("headway up --ports auto"))
def up(
    *,
    config: Annotated[
        Path | None,
        typer.Option(envvar="HEADWAY_CONFIG", file_okay=False, exists=True, help="Default: infra/config."),
    ] = None,
    home: Home = DEFAULT_HOME,
    ports: Annotated[Literal["default", "auto"], typer.Option(help="9092, 6379, 9101 …, or free ones.")] = "default",
    models: Annotated[bool, typer.Option("--models/--no-models", help="Real models, or simulated ones.")] = True,
) -> None:
    """Run the whole plane here until Ctrl-C.

    Kafka, Valkey, the services and their workers are children of this process: none survives it. The
    configuration folder is applied first, if it changed.
    """
    from headway.cli.bundles import classes_with_models
    from headway.cli.embedded import EmbeddedPlane, run_foreground
    from headway.cli.folders import default_folder, require_valid
    from headway.cli.progress import StartProgress

    folder = config or default_folder()
    bundle = require_valid(folder)
    if not models:
        say(f"simulated, with answers that mean nothing: {', '.join(classes_with_models(bundle)) or 'nothing'}")
    progress = StartProgress()
    run_foreground(_stay_up(EmbeddedPlane(home, folder, progress, ports=ports, models=models), progress))


async def _stay_up(plane: EmbeddedPlane, progress: StartProgress) -> None:
    """Starts it, says where it is, and stops it when cancelled, or when it cannot go on (PlaneError)."""
    began = time.monotonic()
    try:
        with progress:
            found = await plane.start()
        say(f"up in {time.monotonic() - began:.1f} s: kafka {found.kafka}, redis {found.redis}. Ctrl-C stops.")
        await plane.wait()
    finally:
        await plane.stop()
