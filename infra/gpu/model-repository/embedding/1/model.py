"""Texts → vectors, for want of a model with weights: letters, three at a time, each counted where its hash falls.

Texts with the same words are near each other, texts with the same meaning are not. Run by Triton, in its own Python.
"""

from typing import Any
from zlib import crc32

import numpy as np
import triton_python_backend_utils as triton

DIMENSIONS = 256


class TritonPythonModel:
    """TEXT [n, 1] → VECTOR [n, 256], each of length 1."""

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        texts = triton.get_input_tensor_by_name(request, "TEXT").as_numpy()[:, 0]
        vectors = np.stack([_vector(text) for text in texts])
        return triton.InferenceResponse([triton.Tensor("VECTOR", vectors)])


def _vector(text: bytes) -> Any:
    padded = b"  " + text.lower() + b"  "
    places = [crc32(padded[start : start + 3]) % DIMENSIONS for start in range(len(padded) - 2)]
    counts = np.bincount(places, minlength=DIMENSIONS).astype(np.float32)
    return counts / np.linalg.norm(counts)
