"""`headway top`: the plane at work, on one screen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.exits import CliError, Exit
from headway.cli.options import DEFAULT_HOME, AsJson, Home, example
from headway.cli.output import console, print_json, say
from headway.cli.reach import complete

if TYPE_CHECKING:
    from headway.cli.picture import Picture

app = typer.Typer()

WINDOW_S = 60.0
PAGES = "HEADWAY_METRICS_URLS"


@app.command(epilog=example("headway top --once --every 10"))
def top(
    *,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print what moved in between, and end.")] = False,
    metrics: Annotated[
        list[str] | None,
        typer.Option(envvar=PAGES, metavar="URL", help="A service's metrics; may be repeated. Default: of --home."),
    ] = None,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Show the plane at work: pipelines, model classes and lanes, until Ctrl-C.

    Figures come from the services' own metrics: rates, shares, times and costs are of the last minute, or of the time
    since the first look. What is not known is `–` (null in JSON), never 0.
    """
    pages = {_name(url): url for url in metrics} if metrics else _own_pages(home)
    complete(_show(pages, every, once=once, as_json=as_json))


def _own_pages(home: Path) -> Mapping[str, str]:
    from headway.plane.endpoints import load_endpoints
    from headway.plane.errors import PlaneError

    try:
        return load_endpoints(home).metrics
    except PlaneError as error:
        message = f"{error}; of another plane, name the metrics: `headway top --metrics http://HOST:PORT/metrics`"
        raise CliError(message, Exit.UNREACHABLE) from None


def _name(url: str) -> str:
    """The machine and port of a URL. Raises CliError for what is no URL of a page."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port
    except ValueError:
        usable = False
    if not usable:
        raise CliError(f"{url!r} names no metrics: write http://HOST:PORT/metrics", Exit.USAGE)
    return parts.netloc


async def _show(pages: Mapping[str, str], every_s: float, *, once: bool, as_json: bool) -> None:
    """A terminal shows one picture that changes; a pipe gets one after the other."""
    from contextlib import nullcontext
    from dataclasses import asdict

    from rich.console import Group
    from rich.live import Live

    from headway.cli.screen import drawn

    screen = console()
    live = (
        Live(console=screen, screen=True, auto_refresh=False)
        if screen.is_terminal and not (once or as_json)
        else None
    )
    if live is None:
        say(f"looking for {every_s:g} s")
    with live or nullcontext():
        async for seen in _pictures(pages, every_s):
            if as_json:
                print_json(asdict(seen))
            elif live:
                live.update(Group(*drawn(seen)), refresh=True)
            else:
                screen.print(Group(*drawn(seen)))
            if once:
                return


async def _pictures(pages: Mapping[str, str], every_s: float) -> AsyncIterator[Picture]:
    """One after each look from the second on: nothing has moved before. A CliError if nobody answers the first."""
    from asyncio import sleep

    from httpx import AsyncClient

    from headway.cli.picture import picture
    from headway.cli.scrapes import scrape
    from headway.cli.window import Window

    window = Window(WINDOW_S)
    async with AsyncClient(trust_env=False) as client:
        first = await scrape(client, pages)
        if not first.processes:
            raise CliError(f"no metrics at {', '.join(pages.values())}: is the plane up?", Exit.UNREACHABLE)
        window.add(first)
        while True:
            await sleep(every_s)
            yield picture(window.add(await scrape(client, pages)))
