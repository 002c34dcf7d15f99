"""Listens for KEDA: plain gRPC inside the cluster, bounded, and without a secret to tell."""

from types import TracebackType
from typing import Self

import grpc.aio

from services.autoscaler.keda.board import Board
from services.autoscaler.keda.scaler import MAX_STREAMS, ExternalScaler, handlers
from services.chassis.settings import SettingsError

STOP_S = 0.5
"""Open streams end at once when the board is closed; what has not ended after so long is cut off."""
OPTIONS = (
    ("grpc.max_receive_message_length", 65_536),
    ("grpc.so_reuseport", 0),  # else a second process would take half of the calls, and nobody would say so
    ("grpc.keepalive_time_ms", 20_000),  # a KEDA that has vanished keeps no stream
    ("grpc.keepalive_timeout_ms", 10_000),
)


class KedaServer:
    """Answers for as long as it is entered (`async with`); then its board is closed, and KEDA asks elsewhere."""

    def __init__(self, board: Board, host: str, port: int, setting: str) -> None:
        """`port` 0: any free one. `setting`: the variable to name when it is taken, which is a SettingsError."""
        self._board = board
        self._address = f"{host}:{port}"
        self._setting = setting
        self._server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=2 * MAX_STREAMS)
        self._server.add_generic_rpc_handlers((handlers(ExternalScaler(board)),))
        self._port = 0

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._port, "not started"
        return self._port

    async def __aenter__(self) -> Self:
        try:
            self._port = self._server.add_insecure_port(self._address)
        except RuntimeError:
            raise SettingsError(f"cannot listen on {self._address}: set {self._setting} to a free port") from None
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._board.close()
        await self._server.stop(STOP_S)
