"""One simulated plane: its topics, stores and processes, in virtual time, from one seed."""

import asyncio
import copy
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from enum import Enum
from functools import partial
from random import Random
from typing import Any, cast

from schemas.base import BlobRef
from schemas.models import Queue
from schemas.redis_keys import EndedRun
from schemas.topics import EVENTS, FLEET, JOINS, REQUESTS, RESPONSES, TASKS, USAGE, all_topics
from services.chassis.blobs import BlobUnavailableError, InMemoryBlobStore
from services.chassis.kafka.in_memory import Faults, InMemoryConsumer, InMemoryKafka, InMemoryProducer
from services.chassis.kafka.types import (
    Appended,
    Commit,
    ConsumerSettings,
    Outgoing,
    RebalanceListener,
    Record,
    TopicPartition,
)
from services.worker.adapters.memory_claims import InMemoryClaimStore, Shelf
from services.worker.domain.engine import Call, Engine, Outcome, Result
from services.worker.domain.ports import ClaimStore, ClaimsUnavailable, DeadRuns
from services.worker.engines.simulated import SimulatedEngine
from tests.simulation import parts
from tests.simulation.loop import PROCESS, SimulatedLoop

EPOCH_MS = 1_700_000_000_000
PARTITIONS = {REQUESTS: 2, EVENTS: parts.EVENTS_PARTITIONS, JOINS: 2, RESPONSES: 1, USAGE: 1, FLEET: 1}
LOST_ACKNOWLEDGEMENTS = 0.02
RETRY_S = 1.5
HEARTBEAT_S = 1.5
ROUND_TRIP_S = 0.003
BLOB_S = 0.02
MAX_DRIFT = 0.03
"""How much faster or slower than the broker's a process's clock may run."""

SERVICES: Mapping[str, parts.Main] = {
    "aggregator-1": parts.aggregator,
    "aggregator-2": parts.aggregator,
    "orchestrator-1": parts.orchestrator,
    "orchestrator-2": parts.orchestrator,
    "worker-1": partial(parts.worker, labels=("fast", "slow")),
    "worker-2": partial(parts.worker, labels=("fast", "slow")),
    "worker-3": partial(parts.worker, labels=("slow.spare",)),
}


class State(Enum):
    """How a process is."""

    UP = "up"
    FROZEN = "frozen"
    STOPPING = "stopping"
    DOWN = "down"


class Process:
    """One life of a service: what it holds, and how the plane looks from inside it."""

    def __init__(self, world: "World", service: str, life: int) -> None:
        self.world = world
        self.service = service
        self.name = f"{service}.{life}"
        self.state = State.UP
        self.tempo = world.tempo
        self.stopping = asyncio.Event()
        self.is_cut_off = False
        """It does not reach the blob store."""
        self.consumers: list[InMemoryConsumer] = []
        self.producers: list[InMemoryProducer] = []
        drift = world.random.uniform(-MAX_DRIFT, MAX_DRIFT)
        self._clock_offset, self._clock_rate = world.random.uniform(0, 1e6), 1 + drift

    def monotonic(self) -> float:
        """Its own clock: another zero, another rate."""
        return self._clock_offset + self.world.loop.time() * self._clock_rate

    def consumer(self, settings: ConsumerSettings, listener: RebalanceListener) -> InMemoryConsumer:
        """A member of a group, which leaves it late when the process dies."""
        consumer = self.world.kafka.consumer(settings, _Overheard(self, settings.group, listener))
        self.consumers.append(consumer)
        return consumer

    def producer(self) -> InMemoryProducer:
        """A producer whose records wait with the process."""
        producer = _Producer(self)
        self.producers.append(producer)
        return producer

    def blobs(self) -> parts.Blobs:
        """The plane's blobs."""
        return _Blobs(self)

    def claim_store(self) -> ClaimStore:
        """The plane's claims."""
        return cast(ClaimStore, _Distant(self.world, InMemoryClaimStore(self.world.shelf, self.name)))

    def dead_runs(self) -> DeadRuns:
        """The plane's feed."""
        return _Feed(self.world)

    def stop_run(self, run: EndedRun) -> None:
        """Best effort."""
        self.world.announce(run)

    def engine(self, queue: Queue) -> Engine:
        """The queue's own engine, whose answers tell one execution from another."""
        return _Engine(self, queue)

    def record(self, tp: TopicPartition, offset: int) -> Record:
        """Reads one again."""
        return self.world.kafka.log(tp)[offset]


class World:
    """A plane and what has happened on it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = self.stream("world")
        self.tempo = parts.Tempo.drawn(self.random)
        self.loop = SimulatedLoop(self.stream("loop"))
        self.calm = Faults(
            self.stream("kafka"), self.tempo.delay_s, LOST_ACKNOWLEDGEMENTS, RETRY_S, HEARTBEAT_S, self.tempo.fetch_s
        )
        self.kafka = InMemoryKafka(self._stamp, self.sleep, self.calm)
        self.kafka.on_commit = self._on_commit
        self.blobs = InMemoryBlobStore()
        self.shelf = Shelf(self.loop.time)
        self.followers: list[asyncio.Queue[EndedRun]] = []
        self.processes: dict[str, Process] = {}
        self.executions: dict[str, Call] = {}
        """Every call that an engine answered, by the mark on its answer."""
        self.commits: list[Committed] = []
        self.assignments: list[Assigned] = []
        self.sent: list[Sent] = []
        self.crashes: list[str] = []
        """What ended processes by itself."""
        self.befell: Counter[str] = Counter()
        """Faults by kind."""
        self.disturbed_at = 0.0
        """When the newest fault began or ended."""
        self.disturbances: list[int] = []
        self._lives: Counter[str] = Counter()
        self.stamped = 0
        """The newest record's stamp."""
        self._context = copy_context()
        for topic in all_topics(parts.LIVE.bundle.model_classes, {}):
            of_tasks = topic.partitions if TASKS in topic.name else None
            self.kafka.create_topic(topic.name, of_tasks or PARTITIONS.get(topic.name, 1))

    def stream(self, name: str) -> Random:
        """Randomness of its own for each concern: more of one changes nothing of another."""
        return Random(f"{self.seed}/{name}")

    async def sleep(self, seconds: float) -> None:
        """In virtual time."""
        await asyncio.sleep(seconds)

    def later(self, seconds: float, happens: Callable[[], None]) -> None:
        """Outside any process."""
        self.loop.call_later(seconds, happens, context=self._context)

    @property
    def now_ms(self) -> int:
        """The broker's time."""
        return EPOCH_MS + int(self.loop.time() * 1_000)

    def _stamp(self) -> int:
        """Every record has a stamp of its own: it also tells what came before what on the whole plane."""
        self.stamped = max(self.stamped + 1, self.now_ms)
        return self.stamped

    def _on_commit(self, group: str, offsets: Mapping[TopicPartition, Commit]) -> None:
        self.commits.extend(Committed(self.stamped, group, tp, commit.offset) for tp, commit in offsets.items())

    # Processes ---------------------------------------------------------------------------------

    def start(self, service: str) -> None:
        """A new life of a service."""
        self._lives[service] += 1
        process = Process(self, service, self._lives[service])
        self.processes[service] = process
        context = copy_context()
        context.run(PROCESS.set, process.name)
        main = cast(Any, SERVICES[service](process))
        task = self.loop.create_task(main, context=context)
        task.add_done_callback(partial(self._on_end, process), context=self._context)

    def _on_end(self, process: Process, task: "asyncio.Task[Any]") -> None:
        """A service ended: told to, or by what it raised. Its host starts it again."""
        if process.state is State.DOWN or task.cancelled():
            return
        if (error := task.exception()) is not None:
            self.crashes.append(f"{process.name}: {type(error).__name__}: {error}")
        process.state = State.DOWN
        self._bury(process)
        self.later(0.5, partial(self.start, process.service))

    def kill(self, process: Process, restart_s: float) -> None:
        """Its tasks vanish where they stand; its memberships end when their sessions do."""
        process.state = State.DOWN
        self._bury(process)
        self.later(restart_s, partial(self.start, process.service))

    def _bury(self, process: Process) -> None:
        self.loop.stop_process(process.name)
        for consumer in process.consumers:
            self.later(consumer.settings.session_timeout_s, consumer.expel)
            self.kafka.detach(consumer)

    def freeze(self, process: Process, seconds: float) -> None:
        """SIGSTOP, and later SIGCONT: a zombie, if its sessions ended meanwhile."""
        process.state = State.FROZEN
        self.loop.stop_process(process.name)
        for consumer in process.consumers:
            self.later(consumer.settings.session_timeout_s, partial(self._expire, process, consumer))
        self.later(seconds, partial(self._thaw, process))

    def _expire(self, process: Process, consumer: InMemoryConsumer) -> None:
        if process.state is State.FROZEN:
            consumer.expel()

    def _thaw(self, process: Process) -> None:
        if process.state is State.FROZEN:
            process.state = State.UP
            self.loop.continue_process(process.name)
            self.disturb()

    def stop(self, process: Process) -> None:
        """SIGTERM."""
        process.state = State.STOPPING
        process.stopping.set()

    def disturb(self) -> None:
        """A fault begins or ends."""
        self.disturbed_at = self.loop.time()
        self.disturbances.append(self.now_ms)

    # Stores ------------------------------------------------------------------------------------

    def announce(self, run: EndedRun) -> None:
        """As through Redis: nobody hears it while it is away, and not everybody otherwise."""
        if self.shelf.away:
            return
        self.shelf.dead[run.run_id] = run.deadline_at
        for follower in self.followers:
            if self.random.random() < 0.8:
                follower.put_nowait(run)

    def redis_state(self) -> Any:
        """What a rollback goes back to."""
        return copy.deepcopy((self.shelf._entries, self.shelf.dead))

    def restore_redis(self, state: Any) -> None:
        """A replica that was behind has taken over."""
        self.shelf._entries, self.shelf.dead = copy.deepcopy(state)

    # What remains ------------------------------------------------------------------------------

    def records(self, topic: str) -> list[Record]:
        """All records of a topic, in the order of their stamps."""
        return sorted(self.kafka.records(topic), key=lambda record: record.timestamp)

    @property
    def topics(self) -> Sequence[str]:
        """Their names."""
        return sorted(self.kafka._topics)

    def digest(self) -> str:
        """Of every byte in every topic."""
        hashed = hashlib.sha256()
        for topic in self.topics:
            for record in self.kafka.records(topic):
                hashed.update(repr(record).encode())
        return hashed.hexdigest()


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit, and the stamp of the newest record at its moment."""

    at: int
    group: str
    tp: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """A partition came to a process: where its group stood, and where the log ended."""

    at: int
    process: str
    group: str | None
    tp: TopicPartition
    committed: int
    end: int


@dataclass(frozen=True, slots=True)
class Sent:
    """A process began to send a record. Whether it arrived is another question."""

    at: int
    process: str
    record: Outgoing


class _Overheard:
    """A listener, and a note of what it is told."""

    def __init__(self, process: Process, group: str | None, listener: RebalanceListener) -> None:
        self._process = process
        self._group = group
        self._listener = listener

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        world = self._process.world
        commits = world.kafka.group(self._group).commits if self._group else {}
        for tp in sorted(partitions):
            committed = commits[tp].offset if tp in commits else 0
            end = len(world.kafka.log(tp))
            world.assignments.append(Assigned(world.stamped, self._process.name, self._group, tp, committed, end))
        await self._listener.on_assigned(partitions)

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self._listener.on_revoked(partitions)


class _Producer(InMemoryProducer):
    """A producer, and a note of what it sends."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.world.kafka)
        self._process = process

    async def send(self, record: Outgoing) -> "asyncio.Future[Appended]":
        world = self._process.world
        if record.topic != FLEET:
            world.sent.append(Sent(world.stamped, self._process.name, record))
        return await super().send(record)


class _Blobs:
    """The blob store, as far as a process reaches it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world

    async def put(self, content: bytes) -> BlobRef:
        await self._travel()
        return await self._world.blobs.put(content)

    async def get(self, ref: BlobRef) -> bytes:
        await self._travel()
        return await self._world.blobs.get(ref)

    async def delete(self, ref: BlobRef) -> None:
        await self._travel()
        await self._world.blobs.delete(ref)

    async def _travel(self) -> None:
        await asyncio.sleep(self._world.random.uniform(0, BLOB_S))
        if self._process.is_cut_off:
            await asyncio.sleep(self._world.random.choice((0.0, 5.0)))
            raise BlobUnavailableError("away")


class _Distant:
    """A store behind a network: answers take their time, get lost, and come not at all while it is away."""

    def __init__(self, world: World, store: Any) -> None:
        self._world = world
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        return partial(self._ask, getattr(self._store, name))

    async def _ask(self, method: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        await asyncio.sleep(self._world.random.uniform(0, ROUND_TRIP_S))
        if self._world.shelf.away and self._world.random.random() < 0.5:
            await asyncio.sleep(30.0)
        answer = await method(*arguments)
        if self._world.random.random() < 0.01:
            raise ClaimsUnavailable("the answer was lost")
        return answer


class _Feed:
    """The feed of dead runs, as a process hears it."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def follow(self) -> AsyncIterator[EndedRun]:
        heard: asyncio.Queue[EndedRun] = asyncio.Queue()
        self._world.followers.append(heard)
        while True:
            yield await heard.get()


class _Engine(SimulatedEngine):
    """Answers no two calls alike, as models do: `by` names the execution."""

    def __init__(self, process: Process, queue: Queue) -> None:
        super().__init__(cast(Any, queue.engine))
        self._process = process
        self._label = queue.label

    async def infer(self, calls: Sequence[Call]) -> list[Outcome]:
        return [self._marked(call, outcome) for call, outcome in zip(calls, await super().infer(calls), strict=True)]

    def _marked(self, call: Call, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Result) or not isinstance(outcome.output, dict):
            return outcome
        executions = self._process.world.executions
        mark = f"{self._label}/{len(executions)}"
        executions[mark] = call
        return Result({**outcome.output, "by": mark}, outcome.usage)
