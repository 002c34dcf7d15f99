"""Options that many commands share, and how a command's help shows an example."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_HOME = Path(".headway")
Home = Annotated[Path, typer.Option("--home", envvar="HEADWAY_HOME", file_okay=False, help="Folder of the plane.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def example(command: str) -> str:
    """The epilog of a command's help; on one line, to be copied."""
    return f"\b\nExample:\n  {command}"
