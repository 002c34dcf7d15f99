"""A producer that counts the tasks it sends, so that placement knows how long each queue is."""

from asyncio import Future
from collections.abc import Callable, Sequence

from schemas.topics import TASKS
from services.chassis.kafka.types import Appended, Outgoing, Producer
from services.orchestrator.domain.outstanding import Outstanding


class CountedProducer:
    """Wraps the real one; `outstanding` gives the counts of a task topic."""

    def __init__(self, producer: Producer, outstanding: Callable[[str], Outstanding]) -> None:
        self._producer = producer
        self._outstanding = outstanding

    @property
    def dead(self) -> "Future[None]":
        """The wrapped producer's."""
        return self._producer.dead

    async def start(self) -> None:
        """Starts the wrapped producer."""
        await self._producer.start()

    async def stop(self) -> None:
        """Stops the wrapped producer."""
        await self._producer.stop()

    async def send(self, record: Outgoing) -> "Future[Appended]":
        """Sends one record, and counts it when it is a task."""
        future = await self._producer.send(record)
        if record.partition is not None and record.topic.startswith(TASKS):
            self._count(self._outstanding(record.topic), record.partition, future)
        return future

    async def send_all(self, records: Sequence[Outgoing]) -> Sequence[Appended]:
        """Sends many in order, and waits for all acknowledgements."""
        futures = [await self.send(record) for record in records]
        return [await future for future in futures]

    def _count(self, outstanding: Outstanding, partition: int, future: "Future[Appended]") -> None:
        outstanding.sent(partition)

        def on_acknowledged(sent: "Future[Appended]") -> None:
            failed = sent.cancelled() or sent.exception() is not None
            outstanding.acknowledged(partition, -1 if failed else sent.result().offset)

        future.add_done_callback(on_acknowledged)
