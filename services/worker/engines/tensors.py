"""Tensors from JSON and to JSON, by what a model of the Open Inference Protocol tells of itself.

A tensor is a list of lists of numbers, booleans or texts, as deep as its shape.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, create_model
from tritonclient.grpc import InferInput, InferResult
from tritonclient.grpc.service_pb2 import ModelMetadataResponse
from tritonclient.utils import triton_to_np_dtype

from schemas.base import Json
from services.worker.domain.engine import CallerFault, EngineFailed, EngineUnavailable
from services.worker.engines.outcomes import read_input

MAX_SIDE = 1 << 20
"""Of a side of any length, and of a text."""
_PLAIN: dict[str, Any] = {"BYTES": Annotated[str, Field(max_length=MAX_SIDE)], "BOOL": bool}


class Tensor(NamedTuple):
    """One that a model takes. A side of -1 may be of any length."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class Signature:
    """The tensors that a model takes."""

    def __init__(self, metadata: ModelMetadataResponse, optional: frozenset[str] = frozenset()) -> None:
        """EngineUnavailable when one is of a type that JSON has nothing for."""
        self._tensors = {it.name: Tensor(it.name, it.datatype, tuple(it.shape)) for it in metadata.inputs}
        self._optional = optional
        fields: dict[str, Any] = {
            f"tensor_{number}": (_kind(tensor), Field(default=None if name in optional else ..., alias=name))
            for number, (name, tensor) in enumerate(self._tensors.items())
        }
        self._input = create_model("Tensors", __config__=ConfigDict(extra="forbid", strict=True), **fields)

    def read(self, value: Mapping[str, Json]) -> list[InferInput]:
        """What a request sends; CallerFault names the field that the model does not take, or not so."""
        given = read_input(self._input, dict(value)).model_dump(by_alias=True, exclude_unset=True)
        return [_written(self._tensors[name], tensor) for name, tensor in given.items()]

    def smallest(self) -> dict[str, Json]:
        """The smallest input: one of everything it must have, zero or empty."""
        return {name: _nothing(tensor) for name, tensor in self._tensors.items() if name not in self._optional}


def to_json(result: InferResult) -> dict[str, Json]:
    """The tensors of an answer by name; EngineFailed for one that JSON cannot carry."""
    names = [output.name for output in result.get_response().outputs]
    return {name: _listed(name, result.as_numpy(name)) for name in names}


def _kind(tensor: Tensor) -> Any:
    """The type of its JSON, for pydantic to check."""
    kind: Any = _PLAIN.get(tensor.datatype) or _number(tensor)
    for size in reversed(tensor.shape):
        least, most = (size, size) if size >= 0 else (1, MAX_SIDE)
        kind = Annotated[list[kind], Field(min_length=least, max_length=most)]
    return kind


def _number(tensor: Tensor) -> Any:
    dtype = _dtype(tensor)
    if dtype.kind in "iu":
        whole = np.iinfo(dtype)
        return Annotated[int, Field(ge=int(whole.min), le=int(whole.max))]
    most = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    return Annotated[float, Field(ge=-most, le=most, allow_inf_nan=False)]


def _dtype(tensor: Tensor) -> np.dtype[Any]:
    found: type | None = triton_to_np_dtype(tensor.datatype)
    if found is None:
        raise EngineUnavailable(f"{tensor.name} is of type {tensor.datatype}, which JSON has nothing for")
    return np.dtype(found)


def _written(tensor: Tensor, value: Json) -> InferInput:
    array = _array(tensor, value)
    sent = InferInput(tensor.name, list(array.shape), tensor.datatype)
    sent.set_data_from_numpy(array)
    return sent


def _array(tensor: Tensor, value: Json) -> NDArray[Any]:
    """Types and depth were checked before; that all rows are of one length was not."""
    try:
        array = np.array(value, dtype=_dtype(tensor))
    except ValueError:
        raise _ragged(tensor) from None
    if array.ndim != len(tensor.shape):  # of texts numpy makes an array of lists
        raise _ragged(tensor)
    return np.vectorize(str.encode, otypes=[object])(array) if tensor.datatype == "BYTES" else array


def _ragged(tensor: Tensor) -> CallerFault:
    return CallerFault(f"input.{tensor.name}: its rows are not all of one length")


def _nothing(tensor: Tensor) -> Json:
    nothing: Json = "" if tensor.datatype == "BYTES" else False if tensor.datatype == "BOOL" else 0
    for size in reversed(tensor.shape):
        nothing = [nothing] * (size if size >= 0 else 1)
    return nothing


def _listed(name: str, array: NDArray[Any]) -> Json:
    if array.dtype.kind == "O":
        return _texts(name, array)
    if array.dtype.kind in "biu":
        return array.tolist()
    if not np.isfinite(array).all():
        raise EngineFailed(f"the answer's {name} holds what is no number", retryable=False)
    return array.astype(np.float64).tolist()  # of bfloat16 numpy makes no Python numbers


def _texts(name: str, array: NDArray[Any]) -> Json:
    try:
        return np.vectorize(bytes.decode, otypes=[object])(array).tolist()
    except UnicodeDecodeError:
        raise EngineFailed(f"the answer's {name} holds bytes that are no text", retryable=False) from None
