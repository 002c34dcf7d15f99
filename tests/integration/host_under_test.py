"""A host on the real broker whose workers are stubs: `host_under_test.py` is the host, `… worker LABEL` a worker."""

import asyncio
import signal
import sys

from pydantic_settings import SettingsConfigDict

from schemas.metrics import SLOTS
from schemas.models import Queue
from services.chassis.app import App, run_service
from services.chassis.health import ASLEEP
from services.chassis.settings import ServiceSettings
from services.host.adapters.child_process import ChildLauncher
from services.host.app import main


class StubSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="HEADWAY_WORKER_")

    asleep: bool = False


async def work(app: App[StubSettings]) -> None:
    asleep = app.settings.asleep

    def sleep(wanted: bool) -> None:
        nonlocal asleep
        asleep = wanted

    for number, wanted in ((signal.SIGUSR1, True), (signal.SIGUSR2, False)):
        asyncio.get_running_loop().add_signal_handler(number, sleep, wanted)
    app.metrics.gauge(SLOTS).labels(sys.argv[2], "local").set(4)
    await asyncio.sleep(0.2)  # loading its model
    app.readiness.add("engine", lambda: ASLEEP if asleep else None)
    await app.stopping.wait()


def command(_launcher: ChildLauncher, queue: Queue) -> tuple[str, ...]:
    return (sys.executable, __file__, "worker", queue.label)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        sys.exit(run_service(StubSettings, work))
    setattr(ChildLauncher, "command", command)  # noqa: B010  the one thing that is not real here
    sys.exit(main())
