"""Workers that a scenario starts itself, beside those of the plane's host."""

import asyncio
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headway.plane.ports import free_ports
from headway.plane.probes import is_ready
from loadtest.context import Context
from loadtest.nemesis.fault import until
from services.chassis.settings import environment

READY_S, END_S = 30.0, 15.0


async def start_worker(context: Context, *labels: str) -> Process:
    """One process for these queues (`class`, or `class.backend`), ready. TimeoutError after half a minute."""
    (port,) = free_ports(1)
    endpoints = context.endpoints
    with (context.home / "logs" / f"worker-{'-'.join(labels)}-at-{port}.log").open("wb") as log:
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headway", "worker"),
            *(argument for label in labels for argument in ("--model-class", label)),
            stdout=log,
            stderr=log,
            env=environment(
                HEADWAY_HOME=str(context.home),
                HEADWAY_KAFKA_BOOTSTRAP_SERVERS=endpoints.kafka,
                HEADWAY_REDIS_URL=endpoints.redis,
                HEADWAY_WORKER_METRICS_HOST="127.0.0.1",
                HEADWAY_WORKER_METRICS_PORT=str(port),
            ),
        )
    try:
        async with asyncio.timeout(READY_S):
            while not await is_ready(port):  # noqa: ASYNC110  its side door has no event to wait for
                await asyncio.sleep(0.1)
    except BaseException:
        await end_worker(worker)
        raise
    return worker


async def end_worker(worker: Process) -> None:
    """In order; by force when that takes too long."""
    if worker.returncode is not None:
        return
    worker.send_signal(signal.SIGTERM)
    if not await until(lambda: worker.returncode is not None, END_S):
        worker.kill()
    await worker.wait()


@asynccontextmanager
async def worker_of(context: Context, *labels: str) -> AsyncIterator[None]:
    """The same for a while."""
    worker = await start_worker(context, *labels)
    try:
        yield
    finally:
        await end_worker(worker)
