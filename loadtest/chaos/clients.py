"""The clients: an open loop of requests, each act noted before it is done and when its outcome is known."""

import asyncio
import json
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from loadtest.chaos.asks import Ask, contradicting, make
from loadtest.chaos.history import Act, Entry, History
from loadtest.chaos.weather import Mood, Weather
from schemas import ids
from schemas.base import Json
from schemas.config import DEFAULT_TENANT
from schemas.events import RunCancelled
from schemas.topics import EVENTS, REQUESTS

CLIENTS = 8
PATIENCE_S = 5.0
"""An acknowledgement that has not come by then is unknown for the time being."""
AGAIN_WITHIN_S = 1.5
CANCEL_WITHIN_S = 0.3


@dataclass(frozen=True, slots=True)
class Plan:
    """How many requests, how fast (a second), by which seed."""

    requests: int
    rate_per_s: float
    seed: int


class Clients:
    """A few producers, and what is still under way."""

    def __init__(self, bootstrap: str, plan: Plan, weather: Weather, history: History) -> None:
        self._bootstrap = bootstrap
        self._plan = plan
        self._weather = weather
        self._history = history
        self._producers: list[AIOKafkaProducer] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for client in range(CLIENTS):
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap, client_id=f"chaos-client-{client}", acks="all",
                enable_idempotence=True,
            )  # fmt: skip
            await producer.start()
            self._stack.push_async_callback(producer.stop)
            self._producers.append(producer)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def run(self) -> None:
        """Every request at its time, whatever became of those before; returns when all outcomes are known."""
        rng = random.Random(f"arrivals:{self._plan.seed}")
        loop = asyncio.get_running_loop()
        due = loop.time()
        async with asyncio.TaskGroup() as group:
            for number in range(self._plan.requests):
                due += rng.expovariate(self._plan.rate_per_s)
                await asyncio.sleep(max(0.0, due - loop.time()))
                group.create_task(self._one(number, rng.random()))

    async def _one(self, number: int, luck: float) -> None:
        """A request, and what the moods of the moment add to it."""
        moods = self._weather.moods(number)
        ask, client = make(self._plan.seed, number, moods), number % CLIENTS
        if Mood.CANCELLED_BEFORE in moods:
            await self._cancel(client, ask)
        acknowledged = await self._publish(client, ask.request_id, "invoke", ask.body)
        if Mood.CANCELLED_AFTER in moods:
            await asyncio.sleep(luck * CANCEL_WITHIN_S)
            await self._cancel(client, ask)
        if Mood.REPEATED in moods or not acknowledged:
            await asyncio.sleep(luck * AGAIN_WITHIN_S)
            await self._publish(client, ask.request_id, "repeat", ask.body)
        if Mood.CONFLICTING in moods:
            await asyncio.sleep(luck * AGAIN_WITHIN_S)
            await self._publish(client, ask.request_id, "contradict", contradicting(ask))
        for mood in moods:  # when all is done, so that the log will show it
            self._weather.touch(mood, ask.request_id)

    async def _publish(self, client: int, request_id: str, act: Act, body: dict[str, Json]) -> bool:
        """Whether it was acknowledged, however long that took."""
        self._history.add(Entry("invoke", act, client, request_id, body=body))
        value = json.dumps(body, separators=(",", ":")).encode()
        return await self._send(Entry("invoke", act, client, request_id), REQUESTS, value, request_id)

    async def _cancel(self, client: int, ask: Ask) -> None:
        run_id = ids.run_id(DEFAULT_TENANT, ask.request_id)
        event = RunCancelled(run_id=run_id, tenant=DEFAULT_TENANT, cancelled_by="a client")
        invocation = Entry("invoke", "cancel", client, ask.request_id)
        self._history.add(invocation)
        await self._send(invocation, EVENTS, event.model_dump_json().encode(), run_id)

    async def _send(self, invocation: Entry, topic: str, value: bytes, key: str) -> bool:
        producer = self._producers[invocation.client]
        sending = asyncio.ensure_future(producer.send_and_wait(topic, value, key.encode()))
        patient, _ = await asyncio.wait([sending], timeout=PATIENCE_S)
        if not patient:
            self._history.add(invocation.then("info"))
        try:
            found: Any = await sending
        except KafkaError as error:
            certain = isinstance(error, MessageSizeTooLargeError)
            self._history.add(invocation.then("fail" if certain else "info"))
            return False
        self._history.add(invocation.then("ok", f"{found.topic}/{found.partition}/{found.offset}"))
        return True
