"""The nemesis: what befalls a plane, drawn from the seed. Each seed has its own mixture."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from schemas.topics import EVENTS, JOINS, REQUESTS, TASKS
from services.chassis.kafka.types import Outgoing, Record
from tests.simulation.world import Process, State, World

QUIET_AFTER_S = 45.0
"""No fault begins or lasts later than this."""
MEAN_GAP_S = (1.0, 5.0)
OFTEN = {"kill": 3, "zombie": 2, "slow": 2, "echo": 4}
"""Weights of the faults that the join has most to fear from."""


class Nemesis:
    """Strikes a world until it is time to stop, and mends everything then."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.stream("nemesis")
        kinds = sorted(FAULTS)
        self._kinds = self._random.sample(kinds, self._random.randint(3, len(kinds)))
        self._victim = self._random.choice(("", "aggregator-1"))
        self._mean_gap_s = self._random.uniform(*MEAN_GAP_S)

    async def run(self) -> None:
        """Until `QUIET_AFTER_S`."""
        loop = self._world.loop
        while True:
            await asyncio.sleep(self._random.expovariate(1 / self._mean_gap_s))
            if loop.time() >= QUIET_AFTER_S:
                return
            kind = self._random.choices(self._kinds, [OFTEN.get(kind, 1) for kind in self._kinds])[0]
            if FAULTS[kind](self):
                self._world.befell[kind] += 1
                self._world.disturb()

    def _one(self, *states: State) -> Process | None:
        """Some process in one of these states: troubles come together, so often the one that was hit before."""
        found = [process for process in self._world.processes.values() if process.state in states]
        if not found:
            return None
        again = [process for process in found if process.service == self._victim]
        process = self._random.choice(again if again and self._random.random() < 0.5 else found)
        self._victim = process.service
        return process

    def _for(self, shortest_s: float, longest_s: float) -> float:
        """How long a fault lasts; it ends when all do."""
        return min(self._random.uniform(shortest_s, longest_s), QUIET_AFTER_S - self._world.loop.time())

    def _until_later(self, seconds: float, mend: Callable[[], None]) -> None:
        def mended() -> None:
            mend()
            self._world.disturb()

        self._world.later(seconds, mended)

    # Processes ---------------------------------------------------------------------------------

    def kill(self) -> bool:
        """SIGKILL; a frozen process may be killed as well."""
        process = self._one(State.UP, State.STOPPING, State.FROZEN)
        if process is None:
            return False
        down_s = self._for(0.2, 8.0)
        self._world.kill(process, down_s)
        self._world.later(down_s, self._world.disturb)
        return True

    def freeze(self) -> bool:
        """Shorter than a session."""
        return self._freeze(self._for(0.2, 5.0))

    def zombie(self) -> bool:
        """Longer than a session: others have taken over when it goes on."""
        return self._freeze(self._for(7.0, 20.0))

    def _freeze(self, seconds: float) -> bool:
        process = self._one(State.UP, State.STOPPING)
        if process is not None:
            self._world.freeze(process, seconds)
        return process is not None

    def expel(self) -> bool:
        """Its coordinators do not hear it for a while; it goes on in the belief that all is well."""
        process = self._one(State.UP)
        for consumer in process.consumers if process else ():
            consumer.expel()
        return process is not None

    def restart(self) -> bool:
        """SIGTERM, as in an upgrade."""
        process = self._one(State.UP)
        if process is not None:
            self._world.stop(process)
        return process is not None

    # Networks ----------------------------------------------------------------------------------

    def slow(self) -> bool:
        """One process's records take seconds; partitions overtake each other."""
        return self._network(delay_s=self._random.uniform(0.5, 4.0))

    def lossy(self) -> bool:
        """Every other acknowledgement of one process is lost."""
        return self._network(lost_acknowledgements=0.5)

    def _network(self, **changes: Any) -> bool:
        process = self._one(State.UP, State.FROZEN)
        if process is None:
            return False
        for producer in process.producers:
            producer.faults = replace(self._world.calm, **changes)
        self._until_later(self._for(1.0, 10.0), partial(self._calm, process))
        return True

    def _calm(self, process: Process) -> None:
        for producer in process.producers:
            producer.faults = self._world.calm

    # Stores ------------------------------------------------------------------------------------

    def cut_off(self) -> bool:
        """One process does not reach the blob store."""
        process = self._one(State.UP, State.FROZEN)
        if process is not None:
            self._blobs([process], self._for(1.0, 25.0))
        return process is not None

    def blobs_away(self) -> bool:
        """Nobody reaches the blob store."""
        self._blobs(list(self._world.processes.values()), self._for(0.5, 6.0))
        return True

    def _blobs(self, processes: list[Process], seconds: float) -> None:
        def reach(cut_off: bool) -> None:
            for process in processes:
                process.is_cut_off = cut_off

        reach(True)
        self._until_later(seconds, partial(reach, False))

    def redis_away(self) -> bool:
        """Killed or frozen."""
        shelf = self._world.shelf
        shelf.away = True
        self._until_later(self._for(0.5, 10.0), partial(setattr, shelf, "away", False))
        return True

    def redis_flushed(self) -> bool:
        """Everything in it is gone."""
        self._world.shelf.flush()
        return True

    def redis_rolled_back(self) -> bool:
        """It forgets its last seconds."""
        older: Any = self._world.redis_state()
        self._until_later(self._for(1.0, 10.0), partial(self._world.restore_redis, older))
        return True

    # The log -----------------------------------------------------------------------------------

    def echo(self) -> bool:
        """What some process had sent arrives once more: its batch was read again, or it had hung."""
        queues = [topic for topic in self._world.topics if topic.startswith(TASKS) and not topic.endswith("-dlq")]
        records = self._world.records(self._random.choice([REQUESTS, *[EVENTS] * 8, JOINS, *queues]))
        if not records:
            return False
        newest = records[-6:] if self._random.random() < 0.7 else records
        for record in self._random.sample(newest, min(len(newest), 3)):
            self._world.later(self._for(0.0, self._random.choice((0.2, 3.0, 15.0))), partial(self._append, record))
        return True

    def _append(self, record: Record) -> None:
        again = Outgoing(record.topic, record.value, record.key, record.headers, record.partition)
        self._world.kafka.append(record.tp, again)
        self._world.disturb()


FAULTS: dict[str, Callable[[Nemesis], bool]] = {
    fault.__name__: fault
    for fault in (
        Nemesis.kill,
        Nemesis.freeze,
        Nemesis.zombie,
        Nemesis.expel,
        Nemesis.restart,
        Nemesis.slow,
        Nemesis.lossy,
        Nemesis.cut_off,
        Nemesis.blobs_away,
        Nemesis.redis_away,
        Nemesis.redis_flushed,
        Nemesis.redis_rolled_back,
        Nemesis.echo,
    )
}
