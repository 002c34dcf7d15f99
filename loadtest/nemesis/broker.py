"""The broker killed, stopped in order, and frozen."""

import asyncio
import signal

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from headway.plane.ports import HOST
from headway.plane.probes import kafka_answers
from loadtest.nemesis.fault import Evidence, until, until_answer
from loadtest.nemesis.parts import Parts, send, state
from schemas.topics import EVENTS

GONE_S = 20.0
"""An orderly stop may take that long."""
RETURN_S = 90.0
LEADS_S = 2.0


def port(parts: Parts) -> int:
    """Where it listens."""
    return int(parts.endpoints().kafka.rpartition(":")[2])


async def restart(parts: Parts, how: signal.Signals) -> Evidence:
    """The port is refused, then answers again from another process. The plane starts it again."""
    pids, at = await parts.living("kafka"), port(parts)
    if not pids or not send(pid := pids[0], how):
        return Evidence()
    refused = await until_answer(lambda: _refuses(at), GONE_S)
    back = await until(lambda: parts.pid("kafka") not in (0, pid), RETURN_S)
    if not (refused and back and await _serves(parts)):
        return Evidence()
    return Evidence(f"{how.name}: port {at} was refused, pid {pid} became {parts.pid('kafka')}")


async def freeze(parts: Parts, for_s: float) -> Evidence:
    """SIGSTOP: connections stand, and nothing answers; then SIGCONT."""
    pids, at = await parts.living("kafka"), port(parts)
    if not pids or not send(pid := pids[0], signal.SIGSTOP):
        return Evidence()
    try:
        stopped = await until(lambda: state(pid) == "T", 1.0)
        silent = not await kafka_answers(at)
        await asyncio.sleep(for_s)
    finally:
        send(pid, signal.SIGCONT)
    if not (await _serves(parts) and stopped and silent):
        return Evidence()
    return Evidence(f"pid {pid} in state T for {for_s:g} s, port {at} did not answer")


async def _serves(parts: Parts) -> bool:
    """Whether it comes back as more than an open port: a broker that was away leads no partition for a while."""
    return await until_answer(lambda: _leads(parts.endpoints().kafka), RETURN_S)


async def _leads(bootstrap: str) -> bool:
    """Every partition of the events topic tells its end, which only a leader knows."""
    consumer = AIOKafkaConsumer(EVENTS, bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        async with asyncio.timeout(LEADS_S):
            await consumer.start()
            partitions = consumer.assignment()
            return bool(partitions) and len(await consumer.end_offsets(partitions)) == len(partitions)
    except (KafkaError, OSError, TimeoutError):
        return False
    finally:
        await consumer.stop()


async def _refuses(at: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, at)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False
