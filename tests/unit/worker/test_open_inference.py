"""What a status of the Open Inference Protocol means for a call."""

import pytest
from tritonclient.utils import InferenceServerException

from schemas import models
from services.worker.domain.engine import (
    CallerFault,
    DeadlineExceeded,
    EngineError,
    EngineFailed,
    EngineOverloaded,
    EngineUnavailable,
)
from services.worker.engines.open_inference import ModelDied, ServedModel

STATUSES: list[tuple[str, str, type[EngineError], bool, bool]] = [
    ("INVALID_ARGUMENT", "unexpected shape", CallerFault, False, False),
    ("DEADLINE_EXCEEDED", "", DeadlineExceeded, False, False),
    ("UNAVAILABLE", "Request timeout expired", EngineUnavailable, True, True),
    ("NOT_FOUND", "Request for unknown model", EngineUnavailable, True, True),
    ("UNAVAILABLE", "in-1: Exceeds maximum queue size", EngineOverloaded, True, True),
    ("RESOURCE_EXHAUSTED", "too many requests", EngineOverloaded, True, True),
    ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max (9 vs. 8)", EngineFailed, False, False),
    ("CANCELLED", "", EngineUnavailable, True, True),
    ("UNAUTHENTICATED", "", EngineFailed, False, False),
    ("PERMISSION_DENIED", "", EngineFailed, False, False),
    ("UNIMPLEMENTED", "", EngineFailed, False, False),
    ("INTERNAL", "RuntimeError: private", EngineFailed, True, False),
    ("INTERNAL", "Stub process 'shout_0_1' is not healthy.", ModelDied, True, True),
    ("UNKNOWN", "", EngineFailed, True, False),
]


@pytest.mark.parametrize(("status", "message", "kind", "retryable", "shed"), STATUSES)
async def test_a_status_says_whose_fault_it_is_and_whether_to_try_again(
    monkeypatch: pytest.MonkeyPatch,
    *,
    status: str,
    message: str,
    kind: type[EngineError],
    retryable: bool,
    shed: bool,
) -> None:
    model = ServedModel(models.TritonEngine(kind="triton", address="127.0.0.1:1", model="rerank"), {})

    async def refuse(*_: object, **__: object) -> None:
        raise InferenceServerException(message, status=f"StatusCode.{status}")

    monkeypatch.setattr(model._client, "load_model", refuse)
    with pytest.raises(EngineError) as caught:
        await model.load()
    await model.close()
    assert type(caught.value) is kind
    assert (caught.value.retryable, caught.value.shed) == (retryable, shed)
    assert "private" not in str(caught.value)
