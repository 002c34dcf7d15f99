"""Ray Serve: three deployments, composed by handles: one asks the quick one twice, then the slow one."""

import os
import secrets

os.environ |= {  # read when Ray is imported
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",  # its documented switch: one event loop a replica, gRPC, buffered logs
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the loopback address, whatever the system
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # some of its ports listen everywhere all the same
    "RAY_USAGE_STATS_ENABLED": "0",
}

import asyncio
from typing import Any

import ray
import uvloop
from ray import serve
from ray.serve.config import ProxyLocation
from ray.serve.handle import DeploymentHandle

from loadtest.peers.driving import Plan, Report, drive, told
from loadtest.peers.work import QUICK_S, SLOW_S, TEXT

MAX_ONGOING_REQUESTS = 1_024
OPTIONS: dict[str, Any] = {
    "num_replicas": 1,
    "max_ongoing_requests": MAX_ONGOING_REQUESTS,
    "ray_actor_options": {"num_cpus": 0},  # as many replicas as wanted, however few cores there are
}
OBJECT_STORE_BYTES = 100_000_000
SETTINGS = {
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": 1,
    "num_replicas": "1 of each deployment",
    "max_ongoing_requests": MAX_ONGOING_REQUESTS,
    "client": "a deployment handle on uvloop, no HTTP",
}


class Quick:
    async def __call__(self, text: str) -> dict[str, str]:
        await asyncio.sleep(QUICK_S)
        return {"text": text}


class Slow:
    async def __call__(self, left: dict[str, str], right: dict[str, str]) -> dict[str, Any]:
        await asyncio.sleep(SLOW_S)
        return {"left": left, "right": right}


class Fanout:
    def __init__(self, quick: DeploymentHandle, slow: DeploymentHandle) -> None:
        self._quick, self._slow = quick, slow

    async def __call__(self, text: str) -> object:
        left, right = await asyncio.gather(self._quick.remote(text), self._quick.remote(text))
        return await self._slow.remote(left, right)


async def measure(plan: Plan, report: Report, handle: DeploymentHandle) -> None:
    async def call() -> object:
        return await handle.remote(TEXT)

    await drive(plan, call, report)


def main() -> None:
    plan, file = told()
    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=OBJECT_STORE_BYTES,
        _temp_dir=plan.folder,
    )
    try:
        serve.start(proxy_location=ProxyLocation.Disabled)
        deployed = serve.deployment(**OPTIONS)
        application = deployed(Fanout).bind(deployed(Quick).bind(), deployed(Slow).bind())
        handle = serve.run(application, route_prefix=None)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(measure(plan, Report(file, ray.__version__, SETTINGS), handle))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
