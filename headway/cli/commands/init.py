"""`headway init`: a configuration folder to start from."""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.exits import CliError
from headway.cli.options import example

app = typer.Typer()


@app.command(epilog=example("headway init my-plane"))
def init(folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is new or empty.")]) -> None:
    """Write a configuration folder to start from.

    With a commented pipeline, a model class and a Python function.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CliError(f"{folder} is not empty: name a new folder")
    try:
        with as_file(files("headway.cli") / "init_template") as template:
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(template, folder, ignore=ignore, dirs_exist_ok=True)
    except OSError as error:
        raise CliError(f"{folder} cannot be written: {error.strerror or error}") from None
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        print(path)
    print(f"next: headway config validate {folder}, then headway up --config {folder}")
