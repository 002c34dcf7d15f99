"""KEDA is told what the policy has decided, at once, and never a number that nobody knows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_tools import protoc

from services.autoscaler.domain.control import Control, Scaled
from services.autoscaler.domain.rules import Rules
from services.autoscaler.keda import externalscaler_pb2 as pb
from services.autoscaler.keda.board import Board
from services.autoscaler.keda.scaler import ExternalScaler, handlers
from services.autoscaler.keda.server import KedaServer
from services.autoscaler.scaler import Audience
from services.chassis.settings import SettingsError
from tests.unit.autoscaler.observed import seen

FOLDER = Path(pb.__file__).parent
PATIENCE_S = 5.0
PREFIX = "/externalscaler.ExternalScaler/"


class Keda:
    """Calls as KEDA's operator does, for one ScaledObject."""

    def __init__(self, channel: grpc.aio.Channel, queue: str | None) -> None:
        metadata = {"scalerAddress": "autoscaler:9105"} | ({} if queue is None else {"queue": queue})
        self.ref = pb.ScaledObjectRef(name="worker-embedding", namespace="headway", scalerMetadata=metadata)
        self._channel = channel

    async def is_active(self) -> bool:
        answer: pb.IsActiveResponse = await self._call("IsActive", pb.IsActiveResponse, self.ref)
        return answer.result

    async def metric_specs(self) -> list[tuple[str, int, float]]:
        answer: pb.GetMetricSpecResponse = await self._call("GetMetricSpec", pb.GetMetricSpecResponse, self.ref)
        return [(spec.metricName, spec.targetSize, spec.targetSizeFloat) for spec in answer.metricSpecs]

    async def metrics(self, name: str = "headway-desired-replicas") -> list[tuple[str, int, float]]:
        request = pb.GetMetricsRequest(scaledObjectRef=self.ref, metricName=name)
        answer: pb.GetMetricsResponse = await self._call("GetMetrics", pb.GetMetricsResponse, request)
        return [(value.metricName, value.metricValue, value.metricValueFloat) for value in answer.metricValues]

    def stream(self, method: str = "StreamIsActive") -> Any:
        """Ends by itself after some seconds, with DEADLINE_EXCEEDED."""
        call = self._channel.unary_stream(
            PREFIX + method, pb.ScaledObjectRef.SerializeToString, pb.IsActiveResponse.FromString
        )
        return call(self.ref, timeout=PATIENCE_S)

    async def _call(self, method: str, answer: Any, request: Any) -> Any:
        call = self._channel.unary_unary(PREFIX + method, type(request).SerializeToString, answer.FromString)
        return await call(request, timeout=PATIENCE_S)


@asynccontextmanager
async def asked(board: Board, queue: str | None = "embedding") -> AsyncIterator[Keda]:
    async with KedaServer(board, "127.0.0.1", 0, "PORT") as server, channel_to(server.port) as channel:
        yield Keda(channel, queue)


@asynccontextmanager
async def asked_of(scaler: ExternalScaler) -> AsyncIterator[Keda]:
    """Of one with other bounds."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handlers(scaler),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with channel_to(port) as channel:
        yield Keda(channel, "embedding")
    await server.stop(None)


def channel_to(port: int) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}")


def told(**pods: int) -> Board:
    board = Board()
    board.watch(["embedding", "llm"])
    board.tell(pods)
    return board


def refused(status: grpc.StatusCode, words: str = "") -> Any:
    """A call that ends with that status, and says so."""
    return pytest.raises(grpc.aio.AioRpcError, match=f"(?s){status}.*{words}")


async def active(stream: Any) -> bool:
    """The next push."""
    answer = await stream.read()
    assert isinstance(answer, pb.IsActiveResponse)
    return answer.result


async def test_pods_are_as_many_as_the_policy_has_decided() -> None:
    async with asked(told(embedding=3, llm=0)) as keda:
        ((name, target, target_float),) = await keda.metric_specs()
        assert (target, target_float) == (1, 1.0)
        assert await keda.metrics(name) == [(name, 3, 3.0)]
        assert await keda.is_active() is True


async def test_a_queue_that_needs_no_worker_is_inactive() -> None:
    async with asked(told(embedding=3, llm=0), "llm") as keda:
        assert [value for _, *value in await keda.metrics()] == [[0, 0.0]]
        assert await keda.is_active() is False


@pytest.mark.parametrize("board", [Board(), told(llm=2)], ids=["at all", "of this queue"])
async def test_what_is_not_known_is_an_error_and_never_zero(board: Board) -> None:
    async with asked(board) as keda:
        with refused(grpc.StatusCode.UNAVAILABLE, "embedding needs is not known"):
            await keda.metrics()
        with refused(grpc.StatusCode.UNAVAILABLE):
            await keda.is_active()


async def test_a_worker_that_sleeps_has_a_pod() -> None:
    control = Control()
    control.watch([Scaled("embedding", "embedding", Rules(1, 4, 10.0, 60.0, tier="standby", least=2))])
    board = told()
    audience: Audience = board
    async with asked(board) as keda:
        audience.on_look(control.look({"embedding": seen()}, (), 0.0), ())
        assert [value for _, *value in await keda.metrics()] == [[2, 2.0]]


async def test_one_that_leads_no_more_does_not_know() -> None:
    board = told(embedding=3)
    async with asked(board) as keda:
        board.on_end()
        with refused(grpc.StatusCode.UNAVAILABLE):
            await keda.metrics()


async def test_the_metric_is_described_before_anything_is_decided() -> None:
    """KEDA makes an autoscaler of it when a ScaledObject is applied, and would make none without it."""
    async with asked(Board()) as keda:
        assert await keda.metric_specs() == [("headway-desired-replicas", 1, 1.0)]


async def test_a_trigger_that_names_no_queue_is_told_what_to_write() -> None:
    async with asked(told(embedding=3), None) as keda:
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "queue: embedding"):
            await keda.metric_specs()
        with refused(grpc.StatusCode.INVALID_ARGUMENT):
            await keda.metrics()
        with refused(grpc.StatusCode.INVALID_ARGUMENT):
            await active(keda.stream())


async def test_a_queue_that_is_not_configured_is_told_which_are() -> None:
    async with asked(told(embedding=3, llm=0), "embeding") as keda:
        with refused(grpc.StatusCode.NOT_FOUND, "queue: no queue 'embeding'; there are embedding, llm"):
            await keda.metric_specs()
        with refused(grpc.StatusCode.NOT_FOUND):
            await keda.is_active()
        with refused(grpc.StatusCode.NOT_FOUND):
            await active(keda.stream())


async def test_of_very_many_queues_the_first_are_named() -> None:
    board = Board()
    board.watch(f"queue-{number:04}" for number in range(5_000))
    async with asked(board) as keda:
        with refused(grpc.StatusCode.NOT_FOUND, "there are queue-0000, queue-0001"):
            await keda.is_active()


async def test_another_metric_is_refused() -> None:
    async with asked(told(embedding=3)) as keda:
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "headway-desired-replicas"):
            await keda.metrics("s0-lag")


async def test_a_queue_that_sleeps_is_woken_by_a_push() -> None:
    board = told(embedding=0)
    async with asked(board) as keda:
        stream = keda.stream()
        assert await active(stream) is False
        board.tell({"embedding": 1})
        assert await active(stream) is True


async def test_only_what_changes_is_pushed() -> None:
    board = told(embedding=1, llm=0)
    async with asked(board) as keda:
        stream = keda.stream()
        assert await active(stream) is True
        for pods in ({"embedding": 3, "llm": 0}, {"embedding": 3, "llm": 2}, {"llm": 2}):
            board.tell(pods)
        board.tell({"embedding": 0, "llm": 2})
        assert await active(stream) is False


async def test_a_stream_waits_for_the_first_decision() -> None:
    board = Board()
    async with asked(board) as keda:
        stream = keda.stream()
        await stream.wait_for_connection()
        board.tell({"embedding": 1})
        assert await active(stream) is True


async def test_a_stream_that_has_nothing_to_say_ends_in_order() -> None:
    """KEDA waits longer after each error, up to a minute; not after an orderly end."""
    async with asked_of(ExternalScaler(Board(), unknown_for_s=0.0)) as keda:
        stream = keda.stream()
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK


async def test_streams_end_in_order_when_the_server_stops() -> None:
    board = told(embedding=1)
    async with KedaServer(board, "127.0.0.1", 0, "PORT") as server:
        channel = channel_to(server.port)
        stream = Keda(channel, "embedding").stream()
        assert await active(stream) is True
    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK
    await channel.close()


async def test_streams_are_bounded_and_one_that_has_gone_makes_room() -> None:
    board = told(embedding=1)
    async with asked_of(ExternalScaler(board, max_streams=1)) as keda:
        first = keda.stream()
        assert await active(first) is True
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
            await active(keda.stream())
        board.close()
        assert await first.read() is grpc.aio.EOF
        assert await keda.stream().read() is grpc.aio.EOF, "it was let in, and sent away in order"


async def test_streaming_metric_specs_is_not_served() -> None:
    """KEDA then asks for the target itself."""
    async with asked(told(embedding=1)) as keda:
        with refused(grpc.StatusCode.UNIMPLEMENTED):
            await keda.stream("StreamMetricSpec").read()


async def test_a_port_that_is_taken_is_a_wrong_setting() -> None:
    async with KedaServer(Board(), "127.0.0.1", 0, "PORT") as server:
        with pytest.raises(SettingsError, match="set HEADWAY_PORT to a free port"):
            async with KedaServer(Board(), "127.0.0.1", server.port, "HEADWAY_PORT"):
                pass


async def test_what_is_on_the_wire_is_keda_s_protocol() -> None:
    """Bytes by hand, from the field numbers of KEDA's own definition."""
    key, value = b"\x0a\x05queue", b"\x12\x09embedding"
    ref = b"\x0a\x01w\x12\x01n" + b"\x1a\x12" + key + value
    request = b"\x0a" + bytes([len(ref)]) + ref + b"\x12\x18headway-desired-replicas"
    async with KedaServer(told(embedding=2), "127.0.0.1", 0, "PORT") as server, channel_to(server.port) as channel:
        is_active: Any = channel.unary_unary(PREFIX + "IsActive")
        assert await is_active(ref) == b"\x08\x01"
        metric = b"\x0a\x18headway-desired-replicas\x10\x02\x19" + b"\x00\x00\x00\x00\x00\x00\x00\x40"
        get_metrics: Any = channel.unary_unary(PREFIX + "GetMetrics")
        assert await get_metrics(request) == b"\x0a\x25" + metric


def test_what_is_generated_is_what_the_definition_makes(tmp_path: Path) -> None:
    arguments = [f"-I{FOLDER}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", "externalscaler.proto"]
    assert protoc.main(["protoc", *arguments]) == 0
    for file in ("externalscaler_pb2.py", "externalscaler_pb2.pyi"):
        assert (tmp_path / file).read_text() == (FOLDER / file).read_text(), "see externalscaler.proto"


async def test_a_change_is_not_missed_between_a_look_and_the_wait_for_it() -> None:
    board = told(embedding=0)
    change, pods = board.change, board.pods("embedding")
    board.tell({"embedding": 1})
    async with asyncio.timeout(PATIENCE_S):
        await change.wait()
    assert (pods, board.pods("embedding")) == (0, 1)
