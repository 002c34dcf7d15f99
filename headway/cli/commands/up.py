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
    import asyncio

    from headway.cli.bundles import classes_with_models
    from headway.cli.embedded import EmbeddedPlane
    from headway.cli.folders import default_folder, require_valid
    from headway.cli.progress import StartProgress

    folder = config or default_folder()
    bundle = require_valid(folder)
    if not models:
        say(f"simulated, with answers that mean nothing: {', '.join(classes_with_models(bundle)) or 'nothing'}")
    progress = StartProgress()
    asyncio.run(stay_up(EmbeddedPlane(home, folder, progress, ports=ports, models=models), progress))


async def stay_up(plane: EmbeddedPlane, progress: StartProgress) -> None:
    """Starts it, says where it is, and stops it when asked to, or when it cannot go on (PlaneError)."""
    import asyncio

    stop_when_asked()
    began = time.monotonic()
    try:
        with progress:
            endpoints = await plane.start()
        say(
            f"up in {time.monotonic() - began:.1f} s: kafka {endpoints.kafka}, redis {endpoints.redis}. Ctrl-C stops."
        )
        await plane.wait()
    except asyncio.CancelledError:
        await plane.stop()
        say("stopped")


def stop_when_asked() -> None:
    """SIGINT and SIGTERM cancel the calling task."""
    import asyncio
    import signal

    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
