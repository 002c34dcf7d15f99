"""A service that behaves as its argument says; `test_app` runs it as a process."""

import asyncio
import sys
import threading
import time

from pydantic_settings import SettingsConfigDict

from services.chassis.app import App, run_service
from services.chassis.settings import ServiceSettings


class WorkerSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="HEADWAY_WORKER_")


async def main(app: App[WorkerSettings]) -> None:
    app.readiness.add("main", lambda: None)
    print("up", flush=True)  # noqa: T201
    await app.stopping.wait()
    if sys.argv[1] == "drains-too-long":
        await asyncio.sleep(600)
    if sys.argv[1] == "blocks-its-loop":
        time.sleep(600)  # noqa: ASYNC251
    if sys.argv[1] == "leaves-a-thread":
        threading.Thread(target=time.sleep, args=(600,)).start()


if __name__ == "__main__":
    sys.exit(run_service(WorkerSettings, main))
