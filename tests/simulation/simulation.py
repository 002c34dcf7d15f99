"""One seed from its beginning to its end."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from schemas.topics import RESPONSES
from services.chassis.kafka.types import Commit, Record, TopicPartition
from services.worker.domain.engine import Call
from tests.simulation import parts
from tests.simulation.clients import Asked, Clients
from tests.simulation.faults import QUIET_AFTER_S, Nemesis
from tests.simulation.loop import LivelockError
from tests.simulation.world import EPOCH_MS, SERVICES, Assigned, Committed, Sent, World

END_S = 110.0
"""By then the last deadline has passed for long."""
TAIL_S = 12.0
"""Goes on after everything was answered: late effects count, and commits follow."""


@dataclass(frozen=True, slots=True)
class History:
    """What happened: all that the checks look at."""

    seed: int
    asked: Sequence[Asked]
    records: Mapping[str, Sequence[Record]]
    """By topic, in the order of their stamps, which are distinct over all topics."""
    groups: Mapping[str, Mapping[TopicPartition, Commit]]
    """Where each group stands at the end."""
    commits: Sequence[Committed]
    """Every commit, in order."""
    assignments: Sequence[Assigned]
    sent: Sequence[Sent]
    """What services sent, in order; the fleet's statuses aside."""
    blobs: Mapping[str, bytes]
    executions: Mapping[str, Call]
    befell: Mapping[str, int]
    """Faults by kind."""
    disturbances: Sequence[int]
    """When a fault began or ended."""
    trouble: Sequence[str]
    """What ended processes by itself, and what nobody awaited."""
    digest: str

    @property
    def end(self) -> int:
        """The broker's time at the end."""
        return EPOCH_MS + int(END_S * 1_000)


def simulate(seed: int) -> History:
    """Runs one seed. Raises nothing that a fault or a bug of the services may cause."""
    world = World(seed)
    clients = Clients(world)
    trouble = []
    with parts.paced(world.tempo):
        try:
            world.loop.run_until_complete(_story(world, clients))
        except LivelockError as error:
            trouble.append(str(error))
        history = _history(world, clients.asked, trouble)
        world.loop.unwind()
    return history


def _history(world: World, asked: Sequence[Asked], trouble: Sequence[str]) -> History:
    return History(
        seed=world.seed,
        asked=asked,
        records={topic: world.records(topic) for topic in world.topics},
        groups={name: dict(group.commits) for name, group in world.kafka.groups.items()},
        commits=tuple(world.commits),
        assignments=tuple(world.assignments),
        sent=tuple(world.sent),
        blobs=dict(world.blobs.blobs),
        executions=dict(world.executions),
        befell=dict(world.befell),
        disturbances=tuple(world.disturbances),
        trouble=[*trouble, *world.crashes, *world.loop.errors],
        digest=world.digest(),
    )


async def _story(world: World, clients: Clients) -> None:
    nemesis = Nemesis(world)
    for service in SERVICES:
        world.start(service)
    sending, striking = asyncio.create_task(clients.run()), asyncio.create_task(nemesis.run())
    await asyncio.sleep(QUIET_AFTER_S)
    await asyncio.gather(sending, striking)
    await _until(lambda: _all_answered(world, clients), world)
    await asyncio.sleep(TAIL_S)
    await _until(lambda: _all_committed(world), world)


async def _until(holds: Callable[[], bool], world: World) -> None:
    """Or until the end."""
    while not holds() and world.loop.time() < END_S:  # noqa: ASYNC110  nothing here sets an event
        await asyncio.sleep(1.0)


def _all_answered(world: World, clients: Clients) -> bool:
    answered = {record.key for record in world.kafka.records(RESPONSES)}
    return all(asked.request_id.encode() in answered for asked in clients.asked)


def _all_committed(world: World) -> bool:
    stands = [each for group in world.kafka.groups.values() for each in group.commits.items()]
    return all(commit.offset == len(world.kafka.log(tp)) for tp, commit in stands)
