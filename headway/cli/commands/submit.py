"""`headway submit`: one request to a pipeline, and its response."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import uuid4

import typer

from headway.cli.inputs import milliseconds, read_object
from headway.cli.options import DEFAULT_HOME, AsJson, Home, example
from headway.cli.output import say
from headway.cli.reach import client, complete, reach, store

if TYPE_CHECKING:
    from headway.client import RequestOptions
    from schemas.responses import InferenceResponse
    from services.chassis.kafka.connection import Connection

app = typer.Typer()

GRACE_S = 15.0
"""A run ends by its deadline + 15 s."""


@app.command(epilog=example("""headway submit ask --input '{"question": "What does a lambda evaluate to?"}'"""))
def submit(
    pipeline: Annotated[str, typer.Argument(help="Its name, or name@version.")],
    *,
    given: Annotated[str, typer.Option("--input", help="JSON, @FILE, or - for standard input.")],
    priority: Annotated[
        Literal["interactive", "standard", "batch"] | None, typer.Option(help="Default: the pipeline's.")
    ] = None,
    deadline: Annotated[str | None, typer.Option(help="Like 30s. Default: the pipeline's.")] = None,
    session: Annotated[str | None, typer.Option(help="Requests of one session share a prefix cache.")] = None,
    request_id: Annotated[str | None, typer.Option(help="The same id and content is the same run.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the response.")] = True,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print what steps with `stream: true` say, as it comes, on stderr.")
    ] = False,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Publish a request and wait for its response.

    Exits 0 when the run succeeded, 3 when it is partial, 4 when it failed, was blocked or cancelled, or expired.
    """
    from headway.cli.answers import exit_code, show

    if stream and not wait:
        raise typer.BadParameter("--stream waits for the response: leave --no-wait out")
    value = read_object(given)
    deadline_ms = milliseconds(deadline, "--deadline")
    options: dict[str, Any] = {"request_id": request_id or str(uuid4()), "priority": priority, "session": session}
    options["deadline_s"] = None if deadline_ms is None else deadline_ms / 1000
    chosen: RequestOptions = {name: found for name, found in options.items() if found is not None}  # type: ignore[assignment]
    response = complete(
        _submit(reach(home), pipeline, value, chosen, wait=wait, text=store(home) if stream else None)
    )
    if response is not None:
        show(response, as_json=as_json)
        raise typer.Exit(exit_code(response))


async def _submit(
    broker: Connection,
    pipeline: str,
    value: dict[str, Any],
    options: RequestOptions,
    *,
    wait: bool,
    text: str | None,
) -> InferenceResponse | None:
    """None when nobody waits: the request's id has been printed. `text`: where the run is listened to meanwhile."""
    from schemas.requests import MAX_DEADLINE_MS

    async with client(broker) as headway, _listening(text, options["request_id"]):
        submission = await headway.submit(pipeline, value, **options)
        if not wait:
            print(submission.request_id)
            return None
        say(f"request {submission.request_id}")
        deadline_s = options.get("deadline_s", MAX_DEADLINE_MS / 1_000)  # the pipeline's own may be as long
        return await headway.wait(submission.request_id, deadline_s + GRACE_S)


def _listening(text: str | None, request_id: str) -> AbstractAsyncContextManager[None]:
    if text is None:
        return nullcontext()
    from headway.cli.listening import listening

    return listening(text, request_id)
