"""Hops of the floor, as a process: reads some topics, writes each record to the next. Raw aiokafka, no JSON."""

import asyncio
import sys

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

COMMIT_S = 0.5


def topic(run: str, hop: int) -> str:
    """The topic of one hop of one run."""
    return f"loadtest-floor-{run}-{hop}"


async def relay(bootstrap: str, run: str, hops: list[int]) -> None:
    """Moves records from each hop's topic to the next one's, until it is terminated."""
    consumer = AIOKafkaConsumer(
        *(topic(run, hop) for hop in hops),
        bootstrap_servers=bootstrap,
        group_id=f"{topic(run, hops[0])}-relay",
        enable_auto_commit=True,
        auto_commit_interval_ms=int(COMMIT_S * 1_000),
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
    await consumer.start()
    await producer.start()
    following = {topic(run, hop): topic(run, hop + 1) for hop in hops}
    try:
        while True:
            batches: dict[TopicPartition, list[object]] = await consumer.getmany(timeout_ms=100, max_records=500)
            for tp, records in batches.items():
                for record in records:
                    await producer.send(following[tp.topic], record.value, record.key)  # type: ignore[attr-defined]
    finally:
        await consumer.stop()
        await producer.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(relay(sys.argv[1], sys.argv[2], [int(hop) for hop in sys.argv[3].split(",")]))
