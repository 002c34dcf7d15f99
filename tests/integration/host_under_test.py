"""A host on the real broker whose workers are stubs: as a program it is the host, and its `main` is a worker's."""

import asyncio
import signal
import sys
from collections.abc import Sequence
from functools import partial

from pydantic_settings import SettingsConfigDict

from schemas.metrics import SLOTS
from services.chassis.app import App, run_service
from services.chassis.health import ASLEEP
from services.chassis.settings import ServiceSettings
from services.host.adapters import child_process
from services.host.app import main as run_host


class StubSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="HEADWAY_WORKER_")

    asleep: bool = False


async def work(app: App[StubSettings], label: str) -> None:
    asleep = app.settings.asleep

    def sleep(wanted: bool) -> None:
        nonlocal asleep
        asleep = wanted

    for number, wanted in ((signal.SIGUSR1, True), (signal.SIGUSR2, False)):
        asyncio.get_running_loop().add_signal_handler(number, sleep, wanted)
    app.metrics.gauge(SLOTS).labels(label, "local").set(4)
    await asyncio.sleep(0.2)  # loading its model
    app.readiness.add("engine", lambda: ASLEEP if asleep else None)
    await app.stopping.wait()


def main(labels: Sequence[str]) -> int:
    (label,) = labels
    return run_service(StubSettings, partial(work, label=label))


if __name__ == "__main__":
    child_process.WORKER = "tests.integration.host_under_test"  # the one thing that is not real here
    sys.exit(run_host())
