"""What clients ask for: a few requests a seed, some twice, some with another body, some cancelled."""

import asyncio
import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

from schemas import ids
from schemas.events import RunCancelled
from schemas.topics import EVENTS, REQUESTS
from services.chassis.kafka.messages import run_record
from services.chassis.kafka.types import Outgoing, TopicPartition
from tests.simulation.faults import QUIET_AFTER_S
from tests.simulation.world import World

TENANT = "default"
PIPELINES = ("chain", "diamond", "guarded")
LAST_S = QUIET_AFTER_S - 3.0
FAILURES = ("engine_failed", "engine_unavailable", "invalid_input")


@dataclass
class Asked:
    """One request, and where its copies came to stand."""

    request_id: str
    bodies: list[dict[str, Any]]
    """What was sent under this id; usually one, or one twice."""
    accepted: dict[tuple[TopicPartition, int], dict[str, Any]] = field(default_factory=dict)
    """The body of each copy, by its coordinates."""
    cancelled_at: float | None = None

    @property
    def run_id(self) -> str:
        """Of its run."""
        return ids.run_id(TENANT, self.request_id)


class Clients:
    """They never fail; their requests may come twice."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.stream("clients")
        self._producer = world.kafka.producer()
        self.asked: list[Asked] = []

    async def run(self) -> None:
        """Sends everything; returns when all of it is acknowledged."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._random.randint(6, 10)):
                body = _body(self._random, number)
                asked = Asked(f"{self._world.seed}-{number}", [body])
                self.asked.append(asked)
                self._plan(group, asked, body, self._random.uniform(0.5, LAST_S))

    def _plan(self, group: asyncio.TaskGroup, asked: Asked, body: dict[str, Any], at_s: float) -> None:
        group.create_task(self._send(asked, body, at_s))
        if self._random.random() < 0.3:
            asked.bodies.append(body)
            group.create_task(self._send(asked, body, self._soon(at_s)))
        elif self._random.random() < 0.15:
            other = {**body, "labels": {"other": "yes"}}
            asked.bodies.append(other)
            group.create_task(self._send(asked, other, self._soon(at_s)))
        if self._random.random() < 0.2:
            asked.cancelled_at = max(0.0, at_s + self._random.uniform(-2.0, 10.0))
            group.create_task(self._cancel(asked, asked.cancelled_at))

    def _soon(self, at_s: float) -> float:
        return min(at_s + self._random.choice((0.0, 1.0, 20.0)) * self._random.random(), LAST_S)

    async def _send(self, asked: Asked, body: dict[str, Any], at_s: float) -> None:
        await asyncio.sleep(at_s)
        value = json.dumps({"request_id": asked.request_id, **body}).encode()
        # By another key each time, so that copies overtake each other.
        future = await self._producer.send(Outgoing(REQUESTS, value, str(self._random.random()).encode()))
        appended = await future
        asked.accepted[TopicPartition(REQUESTS, appended.partition), appended.offset] = body

    async def _cancel(self, asked: Asked, at_s: float) -> None:
        await asyncio.sleep(at_s)
        event = RunCancelled(run_id=asked.run_id, tenant=TENANT, cancelled_by="a client")
        await self._producer.send_all([run_record(EVENTS, event)])


def _body(random: Random, number: int) -> dict[str, Any]:
    body: dict[str, Any] = {
        "pipeline": random.choice(PIPELINES),
        "input": {
            "n": number,
            "pad": "x" * random.choice((0, 10, 300)),
            "script": {step: _script(random) for step in "abcd"},
        },
    }
    if random.random() < 0.3:
        body["session"] = random.choice(("s1", "s2"))
    if random.random() < 0.3:
        body["priority"] = random.choice(("interactive", "standard", "batch"))
    if random.random() < 0.3:
        body["deadline_ms"] = random.choice((1_500, 4_000, 9_000))
    return body


def _script(random: Random) -> dict[str, Any]:
    """What a step's calls are to do: mostly nothing of their own."""
    chance = random.random()
    if chance < 0.05:
        return {"hang": True}
    if chance < 0.11:
        return {"fail": random.choice(FAILURES)}
    if chance < 0.25:
        return {"latency_ms": random.choice((0, 3_000, 9_000))}
    return {}
