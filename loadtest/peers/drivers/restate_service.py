"""Restate: a service whose handler makes its steps durable with `ctx.run_typed`, called through Restate's ingress.

This file is the service, too: hypercorn serves `app` from it.
"""

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import aiohttp
import restate
import uvloop

from loadtest.peers.driving import Plan, Report, drive, server, told, until
from loadtest.peers.work import QUICK_S, SLOW_S, TEXT

NAME = "loadtest.peers.drivers.restate_service"
READY_TIMEOUT_S = 60.0
HOST = "127.0.0.1"
PROCESSES = 2
SERVER = {
    "RESTATE_DEFAULT_NUM_PARTITIONS": "4",
    "RESTATE_BIFROST__LOCAL__ROCKSDB_DISABLE_WAL_FSYNC": "true",
    "RESTATE_WORKER__INVOKER__CONCURRENT_INVOCATIONS_LIMIT": "1000",
    "RESTATE_LOG_FILTER": "warn",
}

fanout = restate.Service("Fanout")


async def quick(text: str) -> dict[str, str]:
    await asyncio.sleep(QUICK_S)
    return {"text": text}


async def slow(left: dict[str, str], right: dict[str, str]) -> dict[str, Any]:
    await asyncio.sleep(SLOW_S)
    return {"left": left, "right": right}


@fanout.handler()
async def run(ctx: restate.Context, text: str) -> Any:
    left = ctx.run_typed("left", quick, text=text)
    right = ctx.run_typed("right", quick, text=text)
    await restate.gather(left, right)
    return await ctx.run_typed("join", slow, left=await left, right=await right)


app = restate.app([fanout])


class Ports(NamedTuple):
    node: int
    ingress: int
    admin: int
    service: int


def server_env(plan: Plan, ports: Ports) -> dict[str, str]:
    own = {
        "RESTATE_BASE_DIR": plan.folder,
        "RESTATE_NODE_NAME": "peer",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_ADDRESS": f"{HOST}:{ports.node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://{HOST}:{ports.node}/",
        "RESTATE_INGRESS__BIND_ADDRESS": f"{HOST}:{ports.ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"{HOST}:{ports.admin}",
        "RESTATE_DISABLE_TELEMETRY": "true",
    }
    return {**os.environ, **own, **SERVER}


def binary(plan: Plan) -> str:
    (found,) = Path(plan.installed, "node_modules").glob("@restatedev/restate-server-*/bin/restate-server")
    return str(found)


def service_argv(ports: Ports) -> list[str]:
    options = ["--worker-class", "uvloop", "--workers", str(PROCESSES), "--bind", f"{HOST}:{ports.service}"]
    return [sys.executable, "-m", "hypercorn", *options, f"{NAME}:app"]


def is_up(port: int, path: str) -> bool:
    try:
        with urlopen(f"http://{HOST}:{port}{path}", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


async def measure(plan: Plan, ports: Ports, report: Report) -> None:
    unlimited = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=unlimited, raise_for_status=True) as client:
        service = {"uri": f"http://{HOST}:{ports.service}"}
        await client.post(f"http://{HOST}:{ports.admin}/deployments", json=service)

        async def call() -> object:
            async with client.post(f"http://{HOST}:{ports.ingress}/Fanout/run", json=TEXT) as answer:
                return await answer.json()

        await drive(plan, call, report)


def main() -> None:
    plan, file = told()
    ports = Ports(*plan.ports)
    its_version = subprocess.check_output([binary(plan), "--version"], text=True, timeout=READY_TIMEOUT_S).split()[1]
    settings = {
        "steps": "ctx.run_typed, in the service's own process",
        "service": f"restate-sdk {version('restate-sdk')} in {PROCESSES} processes of hypercorn on uvloop",
        "client": f"HTTP, aiohttp {aiohttp.__version__} on uvloop",
        **SERVER,
    }
    with ExitStack() as servers:
        servers.enter_context(server([binary(plan), "--no-logo"], server_env(plan, ports)))
        servers.enter_context(server(service_argv(ports), os.environ))
        until(lambda: is_up(ports.admin, "/health"), READY_TIMEOUT_S)
        until(lambda: is_up(ports.ingress, "/restate/health"), READY_TIMEOUT_S)
        until(lambda: listens(ports.service), READY_TIMEOUT_S)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(measure(plan, ports, Report(file, its_version, settings)))


if __name__ == "__main__":
    main()
