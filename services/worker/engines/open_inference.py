"""One model on a server of the Open Inference Protocol, over gRPC, as its client library has it.

Only an engine that is about to speak the protocol imports this: it needs the extra `triton`.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from grpc.aio import AioRpcError
from tritonclient.grpc import InferRequestedOutput
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.grpc.model_config_pb2 import ModelConfig
from tritonclient.utils import InferenceServerException

from schemas import models
from schemas.base import Json, Priority
from services.worker.domain.engine import (
    Call,
    CallerFault,
    DeadlineExceeded,
    EngineError,
    EngineFailed,
    EngineOverloaded,
    EngineUnavailable,
)
from services.worker.engines.tensors import Signature, to_json

MAX_ANSWER_BYTES = 32 << 20
LOAD_TIMEOUT_S = 900.0
"""Large models load for minutes."""
TELL_TIMEOUT_S = 5.0
"""For what the server does at once, if it does anything."""
_CHANNEL = [
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    ("grpc.max_send_message_length", -1),  # an input is bounded where it comes from
    ("grpc.max_reconnect_backoff_ms", 1_000),  # a server that is back is seen at once: it could take 2 minutes
    ("grpc.use_local_subchannel_pool", 1),
]
_PRIORITIES = {Priority.INTERACTIVE: 1, Priority.STANDARD: 2, Priority.BATCH: 3}
"""1 goes first where the model's `dynamic_batching` has levels; elsewhere none counts."""
_PROCESS_DIED = "is not healthy"
"""What Triton says of a process of a Python model that has died, while it calls the model ready."""
_NOT_READY = "is not ready yet."
"""What MLServer says of a model that it still loads, as if the call were wrong."""
_TOO_LARGE = "larger than max"
_QUEUE_IS_FULL = "xceeds maximum queue size"
"""What Triton says where a model's `max_queue_size` is reached."""


class ModelDied(EngineUnavailable):
    """A process of the model has died. The server does not replace it, and others of the model may still answer."""


class ServedModel:
    """Its calls raise EngineErrors, with no more of the server's words than a status."""

    def __init__(self, config: models.TritonEngine, headers: Mapping[str, str]) -> None:
        """Connects when it is first asked."""
        self._config = config
        self._where = f"model {config.model} at {config.address}"
        self._headers = {name.lower(): value for name, value in headers.items()}  # gRPC wants them so
        self._client = InferenceServerClient(config.address, ssl=config.tls, channel_args=_CHANNEL)
        self._signature: Signature | None = None
        self._answers_often = False

    async def is_loaded(self) -> bool:
        """In whatever state it is."""
        with self._faults():
            try:
                is_ready = await self._client.is_model_ready(
                    self._config.model, self._config.version, headers=self._headers, client_timeout=TELL_TIMEOUT_S
                )
            except InferenceServerException as error:
                if _status(error) == "UNKNOWN":  # what MLServer says of a model that it has not loaded
                    return False
                raise
        return bool(is_ready)

    async def load(self) -> None:
        """Returns when it is loaded."""
        with self._faults():
            await self._client.load_model(self._config.model, headers=self._headers, client_timeout=LOAD_TIMEOUT_S)

    async def unload(self) -> None:
        """Returns at once: calls under way are still answered. One that is not loaded is left so."""
        with self._faults():
            try:
                await self._client.unload_model(
                    self._config.model, headers=self._headers, client_timeout=TELL_TIMEOUT_S
                )
            except InferenceServerException as error:
                if _status(error) != "NOT_FOUND":  # Triton says nothing, others this
                    raise

    async def describe(self) -> Signature:
        """Asks what the model takes and gives. EngineUnavailable where it does not say: MLServer's need not."""
        name = self._config.model, self._config.version
        with self._faults():
            metadata = await self._client.get_model_metadata(
                *name, headers=self._headers, client_timeout=TELL_TIMEOUT_S
            )
            config = await self._model_config()
        if not (metadata.inputs or metadata.outputs):
            raise EngineUnavailable(f"{self._where} does not tell its tensors: they belong in its own settings")
        optional = frozenset(tensor.name for tensor in config.input if tensor.optional)
        self._answers_often = config.model_transaction_policy.decoupled
        self._signature = Signature(metadata, optional)
        return self._signature

    async def _model_config(self) -> ModelConfig:
        """Triton's own; empty where the server has no such thing."""
        try:
            response = await self._client.get_model_config(
                self._config.model, self._config.version, headers=self._headers, client_timeout=TELL_TIMEOUT_S
            )
        except InferenceServerException as error:
            if _status(error) == "UNIMPLEMENTED":
                return ModelConfig()
            raise
        return response.config

    async def ask(self, call: Call) -> Json:
        """The model's answer to a call; if it may answer any number of times, all of them."""
        assert self._signature is not None, "describe it first"
        request = {
            "model_name": self._config.model,
            "model_version": self._config.version,
            "inputs": self._signature.read(call.input),
            "outputs": [InferRequestedOutput(name) for name in self._config.outputs] or None,
            "request_id": call.task_id,
            "priority": _PRIORITIES[call.priority],
            "timeout": max(1, round(call.deadline_s * 1_000_000)),
        }
        with self._faults():
            if self._answers_often:
                return {"responses": [answer async for answer in self._stream(request, call.deadline_s)]}
            result = await self._client.infer(**request, client_timeout=call.deadline_s, headers=self._headers)
        return to_json(result)

    async def _stream(self, request: dict[str, Any], deadline_s: float) -> AsyncIterator[Json]:
        async def requests() -> AsyncIterator[dict[str, Any]]:
            yield request

        answers = self._client.stream_infer(requests(), stream_timeout=deadline_s, headers=self._headers)
        size = 0
        try:
            async for result, error in answers:
                if error is not None:
                    raise error
                size += result.get_response().ByteSize()
                if size > MAX_ANSWER_BYTES:
                    raise _too_large()
                yield to_json(result)
        finally:
            answers.cancel()

    async def answered(self, timeout_s: float) -> int:
        """How many calls of anybody the model has answered; 0 where the server does not say."""
        try:
            told = await self._client.get_inference_statistics(
                self._config.model, self._config.version, headers=self._headers, client_timeout=timeout_s
            )
        except InferenceServerException:
            return 0
        return sum(version.inference_count for version in told.model_stats)

    async def close(self) -> None:
        """Ends the connection, and with it what runs."""
        await self._client.close()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except InferenceServerException as error:
            raise self._fault(_status(error), error.message() or "") from None
        except AioRpcError as error:  # of a stream
            raise self._fault(error.code().name, error.details() or "") from None

    def _fault(self, status: str, message: str) -> EngineError:
        """What a status means. The message may quote an input: it is read, and not passed on."""
        said = f"{self._where}: {status}"
        match status:
            case "INVALID_ARGUMENT" if message.endswith(_NOT_READY):
                return EngineUnavailable(f"{self._where}: not ready")
            case "INVALID_ARGUMENT" | "OUT_OF_RANGE":
                return CallerFault(f"input: {said}")
            case "DEADLINE_EXCEEDED":
                return DeadlineExceeded(said)
            case "RESOURCE_EXHAUSTED" if _TOO_LARGE in message:
                return _too_large()
            case "UNAUTHENTICATED" | "PERMISSION_DENIED":
                return EngineFailed(f"{said}: check header_env", retryable=False)
            case "UNIMPLEMENTED":
                return EngineFailed(f"{said}: check that address is gRPC's", retryable=False)
            case "UNAVAILABLE" | "NOT_FOUND" | "RESOURCE_EXHAUSTED" | "CANCELLED" | "ABORTED":
                has_too_many = status == "RESOURCE_EXHAUSTED" or _QUEUE_IS_FULL in message
                return EngineOverloaded(said) if has_too_many else EngineUnavailable(said)
        return ModelDied(f"{said}: one of its processes has died") if _PROCESS_DIED in message else EngineFailed(said)


def _status(error: InferenceServerException) -> str:
    """`NOT_FOUND` and the like; what comes in a stream has none."""
    return str(error.status() or "INTERNAL").removeprefix("StatusCode.")


def _too_large() -> EngineError:
    return EngineFailed(f"the answer is larger than {MAX_ANSWER_BYTES} bytes", retryable=False)
