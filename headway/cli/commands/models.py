"""`headway models list|try`: the model classes, and one real call past the queues."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.exits import CliError, Exit
from headway.cli.folders import default_folder, require_valid
from headway.cli.inputs import read_object
from headway.cli.options import DEFAULT_HOME, AsJson, Home, example
from headway.cli.output import duration, print_json, print_rows, say
from headway.cli.reach import complete, reach

if TYPE_CHECKING:
    from collections.abc import Collection

    from schemas.fleet import WorkerStatus
    from schemas.models import Queue
    from services.chassis.kafka.connection import Connection
    from services.worker.domain.engine import Engine, Result

app = typer.Typer(name="models", help="The model classes in force.", no_args_is_help=True)

START_TIMEOUT_S = 300.0
"""The first start of a class may build its index."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One queue: a class, or a further backend of one. Replicas are unknown while the fleet is silent."""

    model_class: str
    backend: str
    engine: str
    rank: str
    slots: int
    partitions: str
    warm: int | None
    others: dict[str, int] | None


@app.command("list", epilog=example("headway models list"))
def list_(home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """List the model classes: engine, slots, lanes, and the replicas that serve them now."""
    print_rows(complete(_rows(reach(home))), as_json=as_json, empty="no model class is in force")


@app.command("try", epilog=example("""headway models try embedding --input '{"texts": ["a lambda"]}'"""))
def try_(
    model_class: Annotated[str, typer.Argument(help="`class`, or `class.backend` for a further backend.")],
    *,
    given: Annotated[str, typer.Option("--input", help="JSON, @FILE, or - for standard input.")],
    config: Annotated[
        Path | None,
        typer.Option(envvar="HEADWAY_CONFIG", file_okay=False, exists=True, help="Default: infra/config."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=3_600, help="Seconds for the call.")] = 60.0,
    home: Home = DEFAULT_HOME,
) -> None:
    """Make one real call, past the queues, in this process.

    The engine is built as a worker builds it, from the configuration folder; no plane is needed.
    """
    value = read_object(given)
    folder = config or default_folder()
    queue = _queue(folder, model_class)
    result = complete(_try(queue, value, folder, home, timeout))
    print_json(result.output)


def _queue(folder: Path, label: str) -> Queue:
    from schemas.models import queues

    known = {queue.label: queue for queue in queues(require_valid(folder).model_classes)}
    if label not in known:
        raise CliError(f"no model class {label} in {folder}; there are: {', '.join(known)}", Exit.NOT_FOUND)
    return known[label]


async def _try(queue: Queue, value: dict[str, Any], folder: Path, home: Path, timeout_s: float) -> Result:
    import asyncio

    from services.chassis.settings import secret
    from services.worker.domain.engine import EngineError
    from services.worker.engines.registry import build_engine

    functions = folder / "functions"
    engine = build_engine(queue.engine, slots=1, home=home, functions_folder=functions, secret=secret)
    try:
        began = time.monotonic()
        async with asyncio.timeout(START_TIMEOUT_S):
            await engine.start()
        say(f"{queue.label}: {queue.engine.kind} ready in {duration((time.monotonic() - began) * 1_000)}")
        return await _call(engine, value, timeout_s)
    except EngineError as error:
        raise CliError(f"{queue.label}: {error.code}: {error}", Exit.NOT_SUCCEEDED) from None
    except TimeoutError:
        raise CliError(f"{queue.label}: not ready within {START_TIMEOUT_S:.0f} s", Exit.TIMED_OUT) from None
    finally:
        await engine.stop()


async def _call(engine: Engine, value: dict[str, Any], timeout_s: float) -> Result:
    from services.worker.domain.engine import Call, EngineError

    began = time.monotonic()
    call = Call(
        task_id="try", run_id="try", step="try", attempt=1, tenant="default", session=None, input=value,
        deadline_s=timeout_s,
    )  # fmt: skip
    (outcome,) = await engine.infer([call])
    if isinstance(outcome, EngineError):
        raise outcome
    usage = outcome.usage
    tokens = f", {usage.input_tokens} tokens in, {usage.output_tokens} out" if usage.input_tokens else ""
    say(f"answered in {duration((time.monotonic() - began) * 1_000)}{tokens}")
    return outcome


async def _rows(broker: Connection) -> list[ModelRow]:
    from headway.cli.fleet import read_fleet
    from headway.cli.live import read_applied
    from headway.cli.logs import open_logs
    from schemas.fleet import WorkerStatus

    async with open_logs(broker) as logs:
        live = (await read_applied(logs)).live
        workers = (await read_fleet(logs)).of(WorkerStatus)
    return [_row(queue, workers) for queue in live.queues.values()]


def _row(queue: Queue, workers: Collection[WorkerStatus]) -> ModelRow:
    from collections import Counter

    from schemas.base import Priority

    own = (queue.model_class, queue.backend)
    states: Counter[str] = Counter(worker.state for worker in workers if (worker.model_class, worker.backend) == own)
    warm = states.pop("warm", 0)
    return ModelRow(
        model_class=queue.label,
        backend=queue.backend,
        engine=" ".join(filter(None, (queue.engine.kind, getattr(queue.engine, "model", None)))),
        rank=queue.rank,
        slots=queue.slots,
        partitions="/".join(str(len(queue.lanes.of(lane))) for lane in Priority),
        warm=warm if workers else None,
        others=dict(states) if workers else None,
    )
