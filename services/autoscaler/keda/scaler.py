"""KEDA's questions about a queue, answered from the board.

Kubernetes sizes a deployment to metric / target pods. The metric is what the policy has decided, the target is one:
nothing is left to decide there. What is not known is an error, never 0: KEDA then counts a failure, and takes the
`fallback` of its ScaledObject. `StreamMetricSpec`, which is optional, is not served: the target never changes.
"""

import asyncio
from typing import Any

import grpc
import grpc.aio

from services.autoscaler.keda.board import Board
from services.autoscaler.keda.externalscaler_pb2 import (
    GetMetricSpecResponse,
    GetMetricsRequest,
    GetMetricsResponse,
    IsActiveResponse,
    MetricSpec,
    MetricValue,
    ScaledObjectRef,
)

SERVICE = "externalscaler.ExternalScaler"
METRIC = "headway-desired-replicas"
TARGET = 1
QUEUE = "queue"
"""The trigger's metadata that names the queue."""
MAX_STREAMS = 256
"""KEDA opens one for each ScaledObject."""
MAX_DETAILS = 1_000
"""Characters: an error's details travel in a header, and a client refuses 8 KiB of headers."""
UNKNOWN_FOR_S = 10.0
"""A stream that has nothing to say for so long ends, in order: KEDA asks again in 2 s, and another autoscaler, if
there are several. After an error it would wait longer each time, up to a minute.
"""

Context = grpc.aio.ServicerContext[Any, Any]


class ExternalScaler:
    """The calls. Each aborts with INVALID_ARGUMENT or NOT_FOUND for a queue that is not named, or not configured."""

    def __init__(self, board: Board, *, max_streams: int = MAX_STREAMS, unknown_for_s: float = UNKNOWN_FOR_S) -> None:
        self._board = board
        self._max_streams = max_streams
        self._unknown_for_s = unknown_for_s
        self._streams = 0

    async def is_active(self, ref: ScaledObjectRef, context: Context) -> IsActiveResponse:
        """Whether there is to be any worker. Aborts with UNAVAILABLE when that is not known."""
        return IsActiveResponse(result=await self._pods(ref, context) > 0)

    async def get_metric_spec(self, ref: ScaledObjectRef, context: Context) -> GetMetricSpecResponse:
        """The same at all times: KEDA makes a ScaledObject's autoscaler from it, also before anything is decided."""
        await self._queue(ref, context)
        spec = MetricSpec(metricName=METRIC, targetSize=TARGET, targetSizeFloat=TARGET)
        return GetMetricSpecResponse(metricSpecs=[spec])

    async def get_metrics(self, request: GetMetricsRequest, context: Context) -> GetMetricsResponse:
        """How many workers there are to be. Aborts with UNAVAILABLE when that is not known."""
        if request.metricName != METRIC:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"metricName: the only metric is {METRIC}")
        pods = await self._pods(request.scaledObjectRef, context)
        value = MetricValue(metricName=METRIC, metricValue=pods, metricValueFloat=pods)
        return GetMetricsResponse(metricValues=[value])

    async def stream_is_active(self, ref: ScaledObjectRef, context: Context) -> None:
        """Says at once whether there is to be any worker, and again whenever that changes."""
        queue = await self._queue(ref, context)
        if self._streams >= self._max_streams:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self._max_streams} streams are open already")
        self._streams += 1
        try:
            await self._push(queue, context)
        finally:
            self._streams -= 1

    async def _push(self, queue: str, context: Context) -> None:
        await context.send_initial_metadata(())  # the stream is open, also while there is nothing to say
        told: bool | None = None
        while not self._board.is_closed:
            change, active = self._board.change, self._is_active(queue)
            if active is not None and active != told:
                await context.write(IsActiveResponse(result=active))
                told = active
            try:
                async with asyncio.timeout(self._unknown_for_s if active is None else None):
                    await change.wait()
            except TimeoutError:
                return

    def _is_active(self, queue: str) -> bool | None:
        pods = self._board.pods(queue)
        return None if pods is None else pods > 0

    async def _pods(self, ref: ScaledObjectRef, context: Context) -> int:
        queue = await self._queue(ref, context)
        pods = self._board.pods(queue)
        if pods is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"how many workers {queue} needs is not known here yet")
        return pods

    async def _queue(self, ref: ScaledObjectRef, context: Context) -> str:
        """Any name will do as long as the configuration is not known."""
        queue = ref.scalerMetadata.get(QUEUE, "")
        if not queue:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"the trigger's metadata must name a queue, like `{QUEUE}: embedding`",
            )
        known = self._board.queues
        if known and queue not in known:
            names = ", ".join(sorted(known))
            details = f"metadata.{QUEUE}: no queue {queue[:100]!r}; there are {names}"
            await context.abort(grpc.StatusCode.NOT_FOUND, details[:MAX_DETAILS])
        return queue


def handlers(scaler: ExternalScaler) -> grpc.GenericRpcHandler:
    """The calls by the names that KEDA knows."""
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "IsActive": grpc.unary_unary_rpc_method_handler(
                scaler.is_active, ScaledObjectRef.FromString, IsActiveResponse.SerializeToString
            ),
            "StreamIsActive": grpc.unary_stream_rpc_method_handler(
                scaler.stream_is_active, ScaledObjectRef.FromString, IsActiveResponse.SerializeToString
            ),
            "GetMetricSpec": grpc.unary_unary_rpc_method_handler(
                scaler.get_metric_spec, ScaledObjectRef.FromString, GetMetricSpecResponse.SerializeToString
            ),
            "GetMetrics": grpc.unary_unary_rpc_method_handler(
                scaler.get_metrics, GetMetricsRequest.FromString, GetMetricsResponse.SerializeToString
            ),
        },
    )
