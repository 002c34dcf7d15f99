"""A whole worker and the collector on the in-memory Kafka: what waits or runs is lag, what is done is none."""

import asyncio
from collections.abc import Callable

from schemas.base import Priority
from schemas.models import Queue
from schemas.topics import JOINS, REQUESTS
from services.autoscaler.collector import Collector
from services.autoscaler.domain.backlog import Behind
from services.autoscaler.domain.watched import Watched
from services.chassis.clock import LogClock
from services.chassis.kafka.in_memory_offsets import InMemoryOffsetReader
from tests.pipeline.test_worker_wiring import LLM, Plane, queue_of, until

DEADLINE_S = 5.0


class Watching:
    """A plane, and who looks at it."""

    def __init__(self, queue: Queue) -> None:
        self.plane = Plane(queue)
        for topic in (REQUESTS, JOINS):
            self.plane.kafka.create_topic(topic, 1)
        self._queue = queue
        clock = LogClock()
        clock.observe(self.plane.now_ms)
        self._collector = Collector(InMemoryOffsetReader(self.plane.kafka), clock)
        self._collector.watch(Watched((queue,)))

    async def standard(self) -> Behind:
        """The lane in which tasks travel here."""
        return (await self._collector.sample()).lanes(self._queue)[Priority.STANDARD]

    async def until(self, holds: Callable[[Behind], bool]) -> Behind:
        """Looks again and again."""
        async with asyncio.timeout(DEADLINE_S):
            while not holds(behind := await self.standard()):  # noqa: ASYNC110  nobody says when
                await asyncio.sleep(0.01)
        return behind


async def test_tasks_wait_before_there_is_a_worker_and_are_gone_when_it_has_done_them() -> None:
    watching = Watching(LLM)
    plane = watching.plane
    plane.put(*(plane.task(n) for n in range(12)))
    waiting = await watching.standard()
    assert waiting.tasks == 12
    async with plane.worker():
        assert await watching.until(lambda behind: behind.tasks == 0) == Behind(0, 0.0)
    assert len(plane.events()) == 12


async def test_what_runs_is_still_to_be_done_and_the_oldest_of_it_gets_older() -> None:
    watching = Watching(queue_of("llm", slots=2, latency_ms=60_000))
    plane = watching.plane
    plane.put(*(plane.task(n) for n in range(5)))
    async with plane.worker() as worker:
        await until(lambda: worker.members["llm"].status(worker.name).busy == 2)
        later = await watching.until(lambda behind: (behind.seconds or 0) > 0.1)
        assert later.tasks == 5
