"""Your pipelines, functions and configuration in one process, for your own tests: no broker, no store, no model.

    async with in_process(Path("my-config"), answers={"llm": {"text": "Paris"}}) as plane:
        response = await plane.run("ask", {"question": "What is the capital of France?"})
        assert response.status == "succeeded"

The handlers are those of the real services, on Kafka's in-memory twin: admission, dispatch, joins, retries, fallbacks
and deadlines are what they are in production. Functions really run. Model classes that would need a model or a server
answer what `answers` says, or else a value of the right shape.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any
from uuid import uuid4

from headway.cli.bundles import STAND_INS
from schemas.base import Json, LogTime, Priority
from schemas.config import Bundle
from schemas.events import EVENT, Event, RequestCoordinates
from schemas.fleet import BreakerState, WorkerStatus
from schemas.models import Backend, HttpEngine, OpenAIEngine, SimulatedEngine, TritonEngine
from schemas.redis_keys import EndedRun
from schemas.requests import InferenceRequest
from schemas.responses import InferenceResponse
from schemas.topics import (
    AGGREGATOR_GROUP,
    EVENTS,
    IDEMPOTENCY_WINDOW_MS,
    JOINS,
    ORCHESTRATOR_JOINS_GROUP,
    ORCHESTRATOR_REQUESTS_GROUP,
    PARTITIONS,
    REQUESTS,
    RESPONSES,
    all_topics,
)
from services.aggregator.actions import Actions
from services.aggregator.handlers import Join
from services.aggregator.snapshots import Snapshots
from services.chassis.blobs import InMemoryBlobStore, Outputs
from services.chassis.clock import LogClock
from services.chassis.config.folder import load_folder
from services.chassis.config.live import LiveConfig
from services.chassis.config.problems import ConfigError
from services.chassis.kafka.in_memory import InMemoryKafka
from services.chassis.kafka.stream import BatchHandler, Stream
from services.chassis.kafka.types import ConsumerSettings, Outgoing, Producer, Record, TopicPartition
from services.chassis.metrics import Metrics
from services.chassis.tracing import Tracer
from services.orchestrator.adapters.counted_producer import CountedProducer
from services.orchestrator.domain.door import Announcement, Door
from services.orchestrator.gate import Gate
from services.orchestrator.handlers import Admission, Dispatch
from services.worker.adapters.memory_claims import InMemoryClaimStore, Shelf
from services.worker.adapters.memory_dead_runs import InMemoryDeadRuns
from services.worker.claims import Claims
from services.worker.ended_runs import EndedRuns
from services.worker.engines.registry import build_engine
from services.worker.handlers import Surroundings
from services.worker.member import Member, Name

READY_TIMEOUT_S = 30.0
POLL_S = 0.005
INFORM_S = 0.25
MAX_OPEN_RUNS = 100_000
_STAND_INS = {
    **STAND_INS,
    OpenAIEngine: {"text": "(simulated)", "finish_reason": "stop"},
    HttpEngine: {},
    TritonEngine: {},
}


@asynccontextmanager
async def in_process(
    folder: Path, *, answers: Mapping[str, Json] | None = None, tracer: Tracer | None = None
) -> AsyncIterator["InProcessPlane"]:
    """A plane that runs the configuration `folder`, until the block is left.

    `answers` maps model classes to what they answer, whatever they are asked; `tracer` is told of spans. Raises
    ConfigError, naming every problem of the folder, and what a function's `warm_up` raises.
    """
    bundle, problems = load_folder(folder)
    if bundle is None:
        raise ConfigError("\n".join(map(str, problems)))
    with TemporaryDirectory(prefix="headway-test-") as home:
        plane = InProcessPlane(_simulated(bundle, answers or {}), folder / "functions", Path(home), tracer)
        try:
            await plane.start()
            yield plane
        finally:
            await plane.stop()


class InProcessPlane:
    """Made by `in_process`."""

    def __init__(self, bundle: Bundle, functions: Path, home: Path, tracer: Tracer | None = None) -> None:
        self._live = LiveConfig(1, bundle)
        self._functions = functions
        self._home = home
        self._tracer = tracer
        self._kafka = InMemoryKafka(_now_ms)
        self._producer = self._kafka.producer()
        self._clock = LogClock()
        self._metrics = Metrics()
        self._blobs = InMemoryBlobStore()
        self._outputs = Outputs(self._blobs)
        self._dead_runs = InMemoryDeadRuns()
        self._members: list[Member] = []
        self._engines: list[Any] = []
        self._tasks: list[asyncio.Task[None]] = []
        for topic in all_topics(bundle.model_classes, bundle.tenants):
            self._kafka.create_topic(topic.name, topic.partitions or PARTITIONS)

    async def run(
        self,
        pipeline: str,
        input: Mapping[str, Json],  # noqa: A002  the record's word
        *,
        priority: Priority | None = None,
        deadline_s: float | None = None,
        timeout_s: float = 10.0,
    ) -> InferenceResponse:
        """One request and its response; TimeoutError after `timeout_s`."""
        request = InferenceRequest(
            request_id=str(uuid4()),
            pipeline=pipeline,
            input=dict(input),
            priority=priority,
            deadline_ms=None if deadline_s is None else round(deadline_s * 1_000),
        )
        key = (request.request_id or "").encode()
        value = request.model_dump_json(exclude_none=True).encode()
        await self._producer.send_all([Outgoing(REQUESTS, value, key)])
        await self._until(lambda: self._response(key) is not None, timeout_s)
        return InferenceResponse.model_validate_json(self._response(key) or b"")

    def events(self, run_id: str) -> list[Event]:
        """What the log says of a run, in its order."""
        records = (record for record in self._kafka.records(EVENTS) if record.key == run_id.encode())
        return [EVENT.validate_json(record.value or b"") for record in records]

    def _response(self, key: bytes) -> bytes | None:
        return next((record.value for record in self._kafka.records(RESPONSES) if record.key == key), None)

    async def start(self) -> None:
        """Starts every part and waits until each is ready."""
        await self._producer.start()
        shared = (self._outputs, self._clock, self._metrics)
        dispatch = Dispatch(lambda: self._live, *shared)
        log = _Log(self._kafka, self._dead_runs)
        actions = Actions(
            clock=self._clock, producer=self._producer, outputs=self._outputs, requests=log, stopper=log,
            metrics=self._metrics, tracer=self._tracer,
        )  # fmt: skip
        snapshots = Snapshots(self._blobs, IDEMPOTENCY_WINDOW_MS, monotonic)
        join = Join(
            actions,
            window_ms=IDEMPOTENCY_WINDOW_MS,
            clock=self._clock,
            producer=self._producer,
            snapshots=snapshots,
        )
        gate = Gate(lambda: _announced(join), Door(MAX_OPEN_RUNS, PARTITIONS), self._clock, self._metrics)
        admission = Admission(lambda: self._live, *shared, gate, tracer=self._tracer)
        self._stream(ORCHESTRATOR_REQUESTS_GROUP, REQUESTS, admission)
        counted = CountedProducer(self._producer, dispatch.outstanding)
        self._stream(ORCHESTRATOR_JOINS_GROUP, JOINS, dispatch, producer=counted)
        self._stream(AGGREGATOR_GROUP, EVENTS, join, join)
        self._spawn(join.tick())
        self._start_worker()
        self._spawn(self._inform(dispatch))
        await self._until(lambda: not any(member.why_not_ready() for member in self._members), READY_TIMEOUT_S)

    async def stop(self) -> None:
        """Ends every part."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for engine in self._engines:
            await engine.stop()
        await self._producer.stop()

    def _stream(
        self,
        group: str,
        topic: str,
        handler: BatchHandler,
        join: Join | None = None,
        producer: Producer | None = None,
    ) -> None:
        settings = ConsumerSettings(group=group, topics=(topic,))
        stream = Stream(
            lambda listener: self._kafka.consumer(settings, listener),
            producer or self._producer,
            handler,
            state=join,
        )
        self._spawn(stream.run())

    def _start_worker(self) -> None:
        """One worker for every queue."""
        claims = Claims(InMemoryClaimStore(Shelf(monotonic), "worker"))
        around = Surroundings(self._producer, self._clock, self._outputs, claims, tracer=self._tracer)
        ended = EndedRuns()
        self._spawn(claims.keep(ended.add))
        self._spawn(ended.follow(self._dead_runs))
        for queue in self._live.queues.values():
            engine = build_engine(
                queue.engine,
                slots=queue.slots,
                home=self._home,
                functions_folder=self._functions,
                secret=lambda _: None,
            )
            member = Member(queue, engine, around, ended, consumers=self._kafka.consumer, metrics=self._metrics)
            self._engines.append(engine)
            self._members.append(member)
            self._spawn(member.run())
            self._spawn(member.watch())
            self._spawn(member.guard())

    async def _inform(self, dispatch: Dispatch) -> None:
        """What the fleet topic would tell dispatch of the workers and their circuit breakers."""
        name = Name("worker", "in-process")
        while True:
            news = [status for member in self._members for status in member.news(name)]
            breakers = [(_now_ms(), status) for status in news if isinstance(status, BreakerState)]
            workers = [status for status in news if isinstance(status, WorkerStatus)]
            dispatch.on_worker_statuses([(_now_ms(), status) for status in workers])
            dispatch.on_breakers(breakers, workers)
            await asyncio.sleep(INFORM_S)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> None:
        """Waits, unless a part has failed: its error is raised."""
        async with asyncio.timeout(timeout_s):
            while not holds():
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class _Log:
    """What the join needs beside its topic: requests read again, and workers told of ended runs."""

    kafka: InMemoryKafka
    dead_runs: InMemoryDeadRuns

    async def fetch(self, coordinates: Collection[RequestCoordinates]) -> dict[RequestCoordinates, Record | None]:
        return {each: self.kafka.log(TopicPartition(each.topic, each.partition))[each.offset] for each in coordinates}

    def stop_run(self, run_id: str, deadline_at: LogTime) -> None:
        self.dead_runs.announce(EndedRun(run_id, deadline_at))


def _simulated(bundle: Bundle, answers: Mapping[str, Json]) -> Bundle:
    """Nothing in it needs a model or a server. A ConfigError for an answer of a class that is not there."""
    if unknown := sorted(answers.keys() - bundle.model_classes.keys()):
        raise ConfigError(
            f"answers: no model class {', '.join(unknown)}; there are: {', '.join(bundle.model_classes)}"
        )
    classes = {
        name: found.model_copy(update={"backends": tuple(_backend(name, one, answers) for one in found.backends)})
        for name, found in bundle.model_classes.items()
    }
    return bundle.model_copy(update={"model_classes": classes})


def _backend(model_class: str, backend: Backend, answers: Mapping[str, Json]) -> Backend:
    output = answers.get(model_class, _STAND_INS.get(type(backend.engine)))
    if output is None:
        return backend
    return backend.model_copy(update={"engine": SimulatedEngine(kind="simulated", latency_ms=1.0, output=output)})


def _announced(join: Join) -> list[Announcement]:
    return [Announcement(_now_ms(), join.open_runs())]


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1_000)
