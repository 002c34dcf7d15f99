"""Loading a model by vLLM, beside an event loop that goes on, and giving the loading up."""

import asyncio
from asyncio import Future
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING

from schemas import models
from services.chassis.logging import reason
from services.chassis.settings import adopt, secret
from services.worker.domain.engine import EngineUnavailable
from services.worker.engines.vllm_process import DIES_WITH_WORKER

if TYPE_CHECKING:
    from services.worker.engines.vllm_model import VllmModel

INSTALL = "pip install 'headway[vllm]'"
ENVIRONMENT = {
    DIES_WITH_WORKER: "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork would have this process's sockets, and locks without owners
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
"""What vLLM reads, unless this process was given something else."""
LOOK_EVERY_S = 0.1


async def load_model(config: models.VllmEngine, calls: int) -> "VllmModel":
    """A model that takes so many calls at once. EngineUnavailable says why it cannot be had.

    It is loaded in a thread, since that takes a minute and more. Cancelled, vLLM's processes are killed, which ends
    the loading. The thread is one that stays: vLLM's processes die with the one that started them.
    """
    # Of its own: what is imported keeps the frames that import it, and would keep the model that they return.
    kind = await asyncio.to_thread(_imported)
    before = set(active_children())
    loading = asyncio.get_running_loop().run_in_executor(None, _load, kind, config, calls)
    try:
        return await asyncio.shield(loading)
    except asyncio.CancelledError:
        await _give_up(loading, before)
        raise


def _imported() -> "type[VllmModel]":
    adopt({name: value for name, value in ENVIRONMENT.items() if secret(name) is None})
    try:
        from services.worker.engines.vllm_model import VllmModel
    except ImportError as error:
        said = f"vllm is not installed: {INSTALL}" if error.name == "vllm" else f"vLLM does not run: {reason(error)}"
        raise EngineUnavailable(said) from error
    return VllmModel


def _load(kind: "type[VllmModel]", config: models.VllmEngine, calls: int) -> "VllmModel":
    try:
        return kind.loaded(config, calls)
    except Exception as error:
        said = f"{type(error).__name__}: {reason(error)}"
        raise EngineUnavailable(f"vLLM cannot load the model {config.model}: {said}") from error


async def _give_up(loading: "Future[VllmModel]", before: set[BaseProcess]) -> None:
    while not loading.done():
        for child in set(active_children()) - before:
            child.kill()
        await asyncio.wait([loading], timeout=LOOK_EVERY_S)
    if loading.exception() is None:
        await loading.result().close()
