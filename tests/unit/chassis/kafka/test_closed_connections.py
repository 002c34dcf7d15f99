"""Writing to a broker that has just gone."""

import asyncio

import pytest
import uvloop
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest

from services.chassis.kafka import closed_connections

closed_connections.install()


class ClosedTransport:
    """As uvloop's writer is, before its reader hears of it."""

    closed = False

    def write(self, _: bytes) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    def close(self) -> None:
        self.closed = True


async def test_a_closed_transport_is_a_connection_error_and_the_connection_is_given_up() -> None:
    connection, transport = AIOKafkaConnection("127.0.0.1", 9092), ClosedTransport()
    connection._reader = connection._writer = transport
    connection._read_task = asyncio.create_task(asyncio.sleep(0))
    connection._versions = {MetadataRequest.API_KEY: (0, 1)}
    with pytest.raises(KafkaConnectionError, match=r"127\.0\.0\.1:9092 is closed"):
        connection.send(MetadataRequest([]))
    assert transport.closed


def test_uvloop_raises_what_the_library_does_not_expect() -> None:
    """Should this fail with a newer uvloop, the module is not needed any more."""

    async def write_to_the_closed() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await reader.read()
        writer.transport.abort()
        await asyncio.sleep(0)
        async with server:
            writer.write(b"x")

    with pytest.raises(RuntimeError, match="closed"):
        uvloop.run(write_to_the_closed())
