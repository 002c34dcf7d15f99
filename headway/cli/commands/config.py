"""`headway config`: a folder checked as a whole, published as a revision, taken by every service."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.exits import CliError, Exit
from headway.cli.folders import Folder, default_folder, require_valid
from headway.cli.options import DEFAULT_HOME, AsJson, Home, example
from headway.cli.output import print_json, print_rows, say
from headway.cli.reach import complete, reach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.cli.bundles import Change
    from headway.cli.live import Applied
    from schemas.config import Bundle
    from services.chassis.kafka.connection import Connection

app = typer.Typer(name="config", help="Pipelines and model classes: checked, published.",
                  no_args_is_help=True)  # fmt: skip

Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the services have taken it.")]


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """A revision that is kept."""

    revision: int
    in_force: bool
    applied_at: str
    comment: str


@app.command(epilog=example("headway config validate infra/config"))
def validate(folder: Folder = None, as_json: AsJson = False) -> None:
    """Find everything wrong with a folder at once.

    Each problem with its file, line and a hint. Exits 2 when there is an error; warnings alone are fine.
    """
    from services.chassis.config.folder import load_folder
    from services.chassis.config.problems import has_errors

    where = folder or default_folder()
    bundle, problems = load_folder(where)
    if as_json:
        print_json([asdict(problem) for problem in problems])
    for problem in () if as_json else problems:
        print(f"{problem.severity}: {problem}")
    if has_errors(problems):
        raise typer.Exit(Exit.USAGE)
    if bundle is not None:
        say(f"{where}: {len(bundle.pipelines)} pipelines, {len(bundle.model_classes)} model classes, no error")


@app.command(epilog=example("headway config diff infra/config"))
def diff(folder: Folder = None, home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """Show what `apply` would change."""
    bundle = require_valid(folder or default_folder())
    _show(complete(_differences(reach(home), bundle)), as_json=as_json)


@app.command(epilog=example('headway config apply infra/config --comment "a faster ask"'))
def apply(
    *,
    folder: Folder = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    comment: Annotated[str, typer.Option(help="Why; kept in the history.")] = "",
    if_changed: Annotated[
        bool, typer.Option("--if-changed", help="Not if the newest revision, even if rolled back, is the same.")
    ] = False,
    models: Annotated[bool, typer.Option("--models/--no-models", help="Real models, or simulated ones.")] = True,
    wait: Wait = True,
    home: Home = DEFAULT_HOME,
) -> None:
    """Publish a folder as the new revision, after creating the topics it needs.

    New runs take it at once, without a restart; runs on their way keep what they started with.
    """
    from headway.cli.bundles import without_models

    bundle = require_valid(folder or default_folder())
    bundle = bundle if models else without_models(bundle)
    broker = reach(home)
    if dry_run:
        _show(complete(_differences(broker, bundle)), as_json=False)
    else:
        complete(_apply(broker, bundle, comment, if_changed=if_changed, wait=wait))


@app.command(epilog=example("headway config history"))
def history(home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """List the revisions that are kept, the newest first."""
    rows = complete(_history(reach(home)))
    print_rows(rows, as_json=as_json, empty="nothing was applied yet: run `headway config apply`")


@app.command(epilog=example("headway config rollback 3"))
def rollback(
    revision: Annotated[int, typer.Argument(min=1, help="As `config history` numbers it.")],
    wait: Wait = True,
    home: Home = DEFAULT_HOME,
) -> None:
    """Put an older revision in force again."""
    complete(_rollback(reach(home), revision, wait=wait))


def _show(found: Sequence[Change], *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(change) for change in found])
        return
    for change in found:
        print(f"{change.kind} {change.name}: {change.change}")
        for line in change.lines:
            print(f"  {line}")
    if not found:
        say("nothing to change")


async def _applied(broker: Connection) -> Applied:
    from headway.cli.live import read_applied
    from headway.cli.logs import open_logs

    async with open_logs(broker) as logs:
        return await read_applied(logs)


async def _differences(broker: Connection, bundle: Bundle) -> list[Change]:
    from headway.cli.bundles import changes

    return list(changes((await _applied(broker)).bundle, bundle))


async def _apply(broker: Connection, bundle: Bundle, comment: str, *, if_changed: bool, wait: bool) -> None:
    from headway.cli.bundles import changes
    from headway.cli.revisions import open_history, prepare, until_taken

    applied = await _applied(broker)
    known = applied.newest if if_changed else applied.in_force
    same = known is not None and not any(changes(known.bundle, bundle))
    await prepare(broker, applied.bundle, applied.bundle if same else bundle)
    if known is not None and same:
        say(f"revision {known.revision} is the same: nothing to apply")
        return
    async with open_history(broker) as history:
        number = await history.publish(bundle, comment)
    say(f"revision {number} is in force")
    if wait:
        await until_taken(broker, number)


async def _rollback(broker: Connection, number: int, *, wait: bool) -> None:
    from headway.cli.revisions import open_history, prepare, until_taken

    applied = await _applied(broker)
    if number not in applied.revisions:
        kept = ", ".join(map(str, sorted(applied.revisions))) or "none"
        raise CliError(f"there is no revision {number}; kept: {kept}", Exit.NOT_FOUND)
    await prepare(broker, applied.bundle, applied.revisions[number].bundle)
    async with open_history(broker) as history:
        await history.rollback(number)
    say(f"revision {number} is in force again")
    if wait:
        await until_taken(broker, number)


async def _history(broker: Connection) -> list[RevisionRow]:
    from datetime import UTC, datetime

    from headway.cli.revisions import open_history

    async with open_history(broker) as history:
        entries = await history.entries()
    return [
        RevisionRow(
            revision=entry.revision,
            in_force=entry.current,
            applied_at=datetime.fromtimestamp(entry.applied_at_ms / 1_000, UTC).isoformat(timespec="seconds"),
            comment="(not readable by this version)" if entry.comment is None else entry.comment,
        )
        for entry in entries
    ]
