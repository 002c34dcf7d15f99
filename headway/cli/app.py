"""The command tree, and how every command ends: a result on stdout, or one line on stderr and an exit code.

Command modules import what they need inside their functions: `headway --help` loads none of it.
"""

import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from headway.cli.commands import (
    config,
    demo,
    dlq,
    doctor,
    init,
    lag,
    models,
    pipelines,
    run_,
    scale,
    serve,
    submit,
    top,
    topics,
    up,
)
from headway.cli.exits import Exit, expected


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("headway"))
        raise typer.Exit


app = typer.Typer(
    epilog="Start with `headway demo`, or with `headway up` and `headway submit`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its rich help loads a Markdown parser: twice the time of everything else
)


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version.")
    ] = False,
) -> None:
    """The event-driven inference plane for compound AI: one answer, many models, bursts."""


for module in (demo, up, serve, submit, run_, top, lag, scale, topics, dlq, config, pipelines, models, doctor, init):
    app.add_typer(module.app)


def run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code."""
    try:
        return int(get_command(app).main(list(arguments), prog_name="headway", standalone_mode=False) or Exit.OK)
    except typer.TyperException as error:
        return _usage(error)
    except BrokenPipeError:  # `headway … | head`
        sys.stderr.close()
        return Exit.OK
    except Exception as error:
        code = expected(error)
        return _unexpected(error) if code is None else _fail(str(error), code)


def _usage(error: typer.TyperException) -> int:
    message = error.format_message()
    if message.startswith("Usage:"):  # nothing was asked for: the help is the answer
        print(message, file=sys.stderr)
        return Exit.USAGE
    context = getattr(error, "ctx", None)
    hint = f" (see `{context.command_path} --help`)" if context else ""
    return _fail(f"{message}{hint}", Exit.USAGE)


def _fail(message: str, code: Exit) -> int:
    print(f"headway: {message}", file=sys.stderr)
    return code


def _unexpected(error: Exception) -> int:
    """A bug: the reader needs one line, whoever fixes it the traceback."""
    with tempfile.NamedTemporaryFile("w", prefix="headway-", suffix=".log", delete=False) as log:
        traceback.print_exception(error, file=log)
    reason = " ".join(str(error).split())[:200]
    return _fail(f"unexpected {type(error).__name__}: {reason} (details in {log.name})", Exit.UNEXPECTED)
