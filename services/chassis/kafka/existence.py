"""Which partitions exist. A consumer does not find out: it waits for those it was told of until they do."""

import asyncio
from collections.abc import Set

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError as ClientError

from services.chassis.kafka.connection import Connection
from services.chassis.kafka.types import KafkaError, TopicPartition

MAX_DENIALS, ASK_AGAIN_S = 4, 0.25
"""A broker that restarts does not know its topics at once."""


async def existing(connection: Connection, partitions: Set[TopicPartition]) -> Set[TopicPartition]:
    """Those that some broker knows; it takes a second when one is not known. Raises KafkaError without an answer.

    Asks for all topics: to ask for one by its name could create it.
    """
    await connection.until_reachable()
    client = AIOKafkaClient(**connection.client_settings())
    try:
        await client.bootstrap()
        found = await _known(client, connection, partitions)
        for _ in range(MAX_DENIALS - 1):
            if found == partitions:
                break
            await asyncio.sleep(ASK_AGAIN_S)
            found |= await _known(client, connection, partitions)
    except ClientError as error:
        raise KafkaError(f"the broker does not say which topics exist: {error!r}") from error
    finally:
        await client.close()
    return found


async def _known(
    client: AIOKafkaClient, connection: Connection, partitions: Set[TopicPartition]
) -> set[TopicPartition]:
    cluster = await client.fetch_all_metadata()
    return {
        tp for tp in partitions if tp.partition in (cluster.partitions_for_topic(connection.topic(tp.topic)) or ())
    }
