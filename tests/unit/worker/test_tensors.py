"""JSON to tensors and back, by a model's own description."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tritonclient.grpc import InferInput, InferResult
from tritonclient.grpc.service_pb2 import ModelInferResponse, ModelMetadataResponse

from schemas.base import Json
from services.worker.domain.engine import CallerFault, ContentTooLarge, EngineFailed, EngineUnavailable
from services.worker.engines.tensors import Signature, to_json


def signature(optional: frozenset[str] = frozenset(), **tensors: tuple[str, list[int]]) -> Signature:
    metadata = ModelMetadataResponse(
        inputs=[{"name": name, "datatype": kind, "shape": shape} for name, (kind, shape) in tensors.items()]
    )
    return Signature(metadata, optional)


def sent(kind: str, shape: list[int], value: Json) -> tuple[list[int], bytes]:
    """The shape and the bytes of a tensor as it would be sent."""
    (tensor,) = signature(X=(kind, shape)).read({"X": value})
    assert isinstance(tensor, InferInput)
    assert tensor.datatype() == kind
    return list(tensor.shape()), bytes(tensor._get_content())


@pytest.mark.parametrize(
    ("kind", "value", "raw"),
    [
        ("BOOL", [True, False], b"\x01\x00"),
        ("INT8", [-128, 127], b"\x80\x7f"),
        ("UINT8", [0, 255], b"\x00\xff"),
        ("INT16", [-2], b"\xfe\xff"),
        ("INT32", [1], b"\x01\x00\x00\x00"),
        ("INT64", [-(2**63)], b"\x00" * 7 + b"\x80"),
        ("UINT64", [2**64 - 1], b"\xff" * 8),
        ("FP16", [1, -2.0], b"\x00\x3c\x00\xc0"),
        ("BF16", [1.0], b"\x80\x3f"),
        ("FP32", [1, 0.5], b"\x00\x00\x80\x3f\x00\x00\x00\x3f"),
        ("FP64", [1.0], b"\x00" * 6 + b"\xf0\x3f"),
        ("BYTES", ["\u00fc", "", "a\x00"], b"\x02\x00\x00\x00\xc3\xbc" + b"\x00" * 4 + b"\x02\x00\x00\x00a\x00"),
    ],
)
def test_every_type_is_sent_as_the_protocol_has_it(kind: str, value: Json, raw: bytes) -> None:
    assert sent(kind, [-1], value) == ([len(value)], raw)


def test_a_tensor_is_as_deep_as_its_shape() -> None:
    assert sent("INT8", [-1, 2, 1], [[[1], [2]], [[3], [4]]]) == ([2, 2, 1], b"\x01\x02\x03\x04")
    assert sent("BYTES", [-1, 1], [["a"], ["b"]])[0] == [2, 1]
    assert sent("INT8", [], 7) == ([], b"\x07")


@pytest.mark.parametrize(
    ("kind", "shape", "value", "says"),
    [
        ("INT32", [-1], [1, 2.5], "input.X.1: "),
        ("INT32", [-1], ["1"], "input.X.0: "),
        ("INT32", [-1], [True], "input.X.0: "),
        ("INT8", [-1], [128], "input.X.0: "),
        ("UINT64", [-1], [-1], "input.X.0: "),
        ("FP16", [-1], [70_000.0], "input.X.0: "),
        ("FP32", [-1], [1e39], "input.X.0: "),
        ("FP32", [-1], [float("nan")], "input.X.0: "),
        ("FP32", [-1], ["0.5"], "input.X.0: "),
        ("BOOL", [-1], [1], "input.X.0: "),
        ("BYTES", [-1], [b"x"], "input.X.0: "),
        ("BYTES", [-1], ["\ud800"], "input.X.0: "),
        ("FP32", [-1, 2], [1.0], "input.X.0: "),
        ("FP32", [-1], [[1.0]], "input.X.0: "),
        ("FP32", [-1], 1.0, "input.X: "),
        ("FP32", [-1], [], "input.X: "),
        ("FP32", [3], [1.0, 2.0], "input.X: "),
        ("FP32", [-1, -1], [[1.0], [1.0, 2.0]], "input.X: its rows are not all of one length"),
        ("BYTES", [-1, -1], [["a"], ["b", "c"]], "input.X: its rows are not all of one length"),
    ],
)
def test_what_a_tensor_cannot_hold_is_a_fault_that_names_the_place(
    kind: str, shape: list[int], value: Json, says: str
) -> None:
    with pytest.raises(CallerFault) as caught:
        sent(kind, shape, value)
    assert str(caught.value).startswith(says)
    assert "70000" not in str(caught.value)


def test_more_than_a_fixed_shape_holds_is_too_large() -> None:
    with pytest.raises(ContentTooLarge, match=r"input\.X: "):
        sent("FP32", [2], [1.0, 2.0, 3.0])


def test_names_are_the_model_s_own_and_every_one_is_needed_that_is_not_optional() -> None:
    takes = signature(frozenset({"_top-k"}), **{"input ids": ("INT64", [-1]), "_top-k": ("INT32", [1])})
    assert [tensor.name() for tensor in takes.read({"input ids": [1]})] == ["input ids"]
    assert [tensor.name() for tensor in takes.read({"_top-k": [2], "input ids": [1]})] == ["input ids", "_top-k"]
    for wrong, names in (({"_top-k": [2]}, "input.input ids"), ({"input ids": [1], "x": 1}, "input.x")):
        with pytest.raises(CallerFault) as caught:
            takes.read(wrong)
        assert str(caught.value).startswith(names)


def test_the_smallest_input_is_one_that_the_model_takes() -> None:
    takes = signature(
        frozenset({"OPTIONAL"}),
        TEXT=("BYTES", [-1, 1]), MASK=("BOOL", [2]), X=("FP32", [-1, 3]), N=("INT8", []), OPTIONAL=("INT8", [1]),
    )  # fmt: skip
    smallest = takes.smallest()
    assert smallest == {"TEXT": [[""]], "MASK": [False, False], "X": [[0, 0, 0]], "N": 0}
    assert len(takes.read(smallest)) == 4


def test_a_type_that_json_has_nothing_for_is_said_at_once() -> None:
    with pytest.raises(EngineUnavailable, match="X is of type COMPLEX64"):
        signature(X=("COMPLEX64", [1]))


def answer(kind: str, shape: list[int], raw: bytes) -> InferResult:
    return InferResult(
        ModelInferResponse(outputs=[{"name": "Y", "datatype": kind, "shape": shape}], raw_output_contents=[raw])
    )


@pytest.mark.parametrize(
    ("kind", "shape", "raw", "value"),
    [
        ("INT64", [2], np.array([1, -1]).tobytes(), [1, -1]),
        ("BOOL", [1, 2], b"\x01\x00", [[True, False]]),
        ("FP32", [1], np.array([0.5], np.float32).tobytes(), [0.5]),
        ("BF16", [1], np.array([0.5], ml_dtypes.bfloat16).tobytes(), [0.5]),
        ("BYTES", [2, 1], b"\x02\x00\x00\x00\xc3\xbc\x00\x00\x00\x00", [["\u00fc"], [""]]),
    ],
)
def test_an_answer_is_plain_json(kind: str, shape: list[int], raw: bytes, value: Json) -> None:
    found: dict[str, Any] = to_json(answer(kind, shape, raw))
    assert found == {"Y": value}
    (element,) = {type(item) for item in np.array(found["Y"], dtype=object).flatten()}
    assert element in (int, bool, float, str)


@pytest.mark.parametrize(
    ("kind", "raw"), [("FP32", np.array([np.inf], np.float32).tobytes()), ("BYTES", b"\x01\x00\x00\x00\xff")]
)
def test_an_answer_that_json_cannot_carry_fails_the_engine(kind: str, raw: bytes) -> None:
    with pytest.raises(EngineFailed, match="the answer's Y holds") as caught:
        to_json(answer(kind, [1], raw))
    assert not caught.value.retryable
