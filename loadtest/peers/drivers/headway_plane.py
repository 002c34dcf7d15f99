"""Headway, on a plane that is up: its `fanout` pipeline on simulated engines, by its client."""

import asyncio
from importlib.metadata import version
from typing import Any

import uvloop

from headway.client import HeadwayClient
from loadtest.peers.driving import CALL_TIMEOUT_S, Plan, Report, drive, told
from loadtest.peers.work import TEXT

PIPELINE = "fanout"
SETTINGS: dict[str, Any] = {
    "plane": "one embedded Kafka broker, one process of every service",
    "client": "HeadwayClient on uvloop",
}


async def measure(plan: Plan, report: Report) -> None:
    async with HeadwayClient(plan.kafka) as headway:

        async def call() -> object:
            return (await headway.run(PIPELINE, {"text": TEXT}, timeout_s=CALL_TIMEOUT_S)).output

        await drive(plan, call, report)


def main() -> None:
    plan, file = told()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(plan, Report(file, version("headway"), SETTINGS)))


if __name__ == "__main__":
    main()
