"""What aiokafka 0.14 does not know of uvloop: to write to a connection that has just closed raises RuntimeError.

asyncio raises OSError, or nothing, and the library expects no more. The RuntimeError ends whichever of its routines
wrote. That which learns of leaders ends without a sound: a member of a group then waits for its coordinator for ever,
fetches on, and does everything a second time beside its successor. Seen when a broker was killed.
"""

from functools import wraps
from typing import Any

from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError

_send = AIOKafkaConnection.send


def install() -> None:
    """From now on it is a connection error, which every routine of the library survives."""
    AIOKafkaConnection.send = _send_or_close


@wraps(_send)
def _send_or_close(connection: Any, *args: Any, **options: Any) -> Any:
    try:
        return _send(connection, *args, **options)
    except RuntimeError as error:
        connection.close(reason=CloseReason.CONNECTION_BROKEN)
        raise KafkaConnectionError(f"the connection to {connection.host}:{connection.port} is closed") from error
