"""Configuration folders, as commands take them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.exits import CliError
from headway.cli.output import say

if TYPE_CHECKING:
    from schemas.config import Bundle

Folder = Annotated[
    Path | None, typer.Argument(metavar="[DIR]", envvar="HEADWAY_CONFIG", help="Default: infra/config.")
]


def default_folder() -> Path:
    """`infra/config` of a checkout, else the copy inside the package."""
    package = Path(__file__).parents[1]
    checkout = package.parent / "infra" / "config"
    return checkout if checkout.is_dir() else package / "_config"


def require_valid(folder: Path) -> Bundle:
    """The folder's configuration; warnings are said, errors are a CliError with all of them."""
    from services.chassis.config.folder import load_folder
    from services.chassis.config.problems import Severity

    bundle, problems = load_folder(folder)
    for problem in problems:
        say(f"{problem.severity}: {problem}")
    if bundle is None:
        errors = sum(problem.severity is Severity.ERROR for problem in problems)
        raise CliError(f"{folder} cannot be used: {errors} error{'s' if errors != 1 else ''}")
    return bundle
