"""A response, as people read it, and as a script is told of it."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headway.cli.exits import Exit
from headway.cli.output import console, dollars, duration, line, print_json, safe
from headway.cli.waterfall import STYLES, components, path
from schemas.base import RunStatus
from schemas.responses import InferenceResponse

if TYPE_CHECKING:
    from rich.text import Text

MAX_SOURCES = 3
SOURCE_CHARACTERS = 240


def exit_code(response: InferenceResponse) -> Exit:
    """0 succeeded, 3 partial, 4 for every other outcome."""
    return {RunStatus.SUCCEEDED: Exit.OK, RunStatus.PARTIAL: Exit.PARTIAL}.get(response.status, Exit.NOT_SUCCEEDED)


def show(response: InferenceResponse, *, as_json: bool) -> None:
    """Prints the record as it is, or what a person wants to know of it."""
    if as_json:
        print_json(response.model_dump(mode="json"))
        return
    screen = console()
    for part in parts(response):
        screen.print(part)


def parts(response: InferenceResponse) -> "Iterator[Text]":
    """The answer, its sources, what went wrong, and one line of where the time went."""
    from rich.text import Text

    yield from _output(response.output)
    if response.missing:
        yield Text(f"without: {', '.join(response.missing)}", style="yellow")
    if response.error is not None:
        step = f" in {line(response.error.step)}" if response.error.step else ""
        yield Text(f"{response.error.code}{step}: {line(response.error.message, 500)}", style="red")
    timing = response.timing
    yield Text.assemble(
        (response.status.value, STYLES[response.status]),
        f" in {duration(timing.total_ms)} ({components(timing)})  {dollars(response.usage.cost_usd)}",
    )
    if timing.critical_path:
        yield Text(path(timing.critical_path), style="dim")
    yield Text(f"headway run show {response.run_id}", style="dim")


def _output(output: Any) -> "Iterator[Text]":
    from rich.text import Text

    if isinstance(output, Mapping) and isinstance(output.get("answer"), str):
        yield Text(safe(output["answer"]), style="bold")
        sources = output.get("sources")
        for source in sources[:MAX_SOURCES] if isinstance(sources, list) else ():
            yield Text(f"  “{source_text(source)}”", style="dim")
    elif output is not None:
        import json

        yield Text(json.dumps(output, indent=2, default=str))


def source_text(source: Any, limit: int = SOURCE_CHARACTERS) -> str:
    """The words of a source, on one line."""
    return line(source.get("text", source) if isinstance(source, Mapping) else source, limit)
