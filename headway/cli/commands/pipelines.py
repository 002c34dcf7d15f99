"""`headway pipelines list|graph`: what is in force."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.exits import CliError, Exit
from headway.cli.options import DEFAULT_HOME, AsJson, Home, example
from headway.cli.output import duration, print_json, print_rows
from headway.cli.reach import complete, reach

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.graphs import Step
    from services.chassis.config.live import LiveConfig, LivePipeline
    from services.chassis.kafka.connection import Connection

app = typer.Typer(name="pipelines", help="The pipelines in force.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """One version of a pipeline."""

    pipeline: str
    version: int
    priority: str
    deadline: str
    steps: int
    model_classes: tuple[str, ...]
    description: str


@app.command("list", epilog=example("headway pipelines list"))
def list_(home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """List the pipelines, each version of each."""
    live = complete(_live(reach(home)))
    print_rows([_row(pipeline) for pipeline in live.pipelines], as_json=as_json, empty="no pipeline is in force")


@app.command(epilog=example("headway pipelines graph ask"))
def graph(
    name: Annotated[str, typer.Argument(help="Its name, or name@version.")],
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Show a pipeline's steps, and what each waits for."""
    live = complete(_live(reach(home)))
    found = live.pipeline(name)
    if found is None:
        known = ", ".join(sorted({pipeline.spec.name for pipeline in live.pipelines}))
        raise CliError(f"no pipeline {name}; there are: {known}", Exit.NOT_FOUND)
    if as_json:
        print_json(found.graph)
        return
    for text in drawn(found):
        print(text)


async def _live(broker: Connection) -> LiveConfig:
    from headway.cli.live import read_applied
    from headway.cli.logs import open_logs

    async with open_logs(broker) as logs:
        return (await read_applied(logs)).live


def _row(pipeline: LivePipeline) -> PipelineRow:
    classes = dict.fromkeys(
        target.model_class for step in pipeline.graph.steps for target in step.chain if target.model_class
    )
    return PipelineRow(
        pipeline=pipeline.spec.name,
        version=pipeline.spec.version,
        priority=pipeline.spec.priority.value,
        deadline=duration(pipeline.spec.deadline),
        steps=len(pipeline.spec.steps),
        model_classes=tuple(classes),
        description=pipeline.spec.description,
    )


def drawn(pipeline: LivePipeline) -> Iterator[str]:
    """One line a step, in an order in which they can run; then the output."""
    spec, graph = pipeline.spec, pipeline.graph
    yield f"{spec.name}@{spec.version}  {spec.priority.value}  deadline {duration(spec.deadline)}"
    width = max(len(step.id) for step in graph.steps)
    who = {step.id: _who(step) for step in graph.steps}
    who_width = max(map(len, who.values()))
    for step in in_order(graph.steps):
        waits = f"  ← {', '.join(step.needs)}" if step.needs else ""
        yield f"  {step.id:<{width}}  {who[step.id]:<{who_width}}{waits}".rstrip()
    yield f"  output{' ' * (width + who_width - 4)}  ← {', '.join(graph.output_reads) or 'the input'}"


def _who(step: Step) -> str:
    """`llm`, then what it falls back to: `llm | llm.burst | a value`."""
    if step.chain and step.chain[0].model_class:
        links = (".".join(filter(None, (link.model_class, link.backend))) or "a value" for link in step.chain)
        return " | ".join(links) + ("" if step.on_failure == "fail" else " (optional)")
    return step.kind.value


def in_order(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Needs first; among the free ones as written. A checked graph has no cycle."""
    done: set[str] = set()
    left = list(steps)
    while left:
        step = next(step for step in left if done.issuperset(step.needs))
        left.remove(step)
        done.add(step.id)
        yield step
