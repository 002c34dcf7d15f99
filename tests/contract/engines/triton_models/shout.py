"""A model that takes as long as it is told to, if it is still wanted. Run by Triton, in its own Python.

While a call runs, a file stands in the folder `desk`.
"""

import json
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    """TEXT → SHOUTED, LENGTHS."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        self.desk = Path(parameters["desk"]["string_value"])

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        texts = [text.decode() for text in triton.get_input_tensor_by_name(request, "TEXT").as_numpy()]
        seconds = triton.get_input_tensor_by_name(request, "SECONDS")
        paper = self.desk / uuid.uuid4().hex
        paper.touch()
        try:
            if not _wait(request, 0.0 if seconds is None else float(seconds.as_numpy()[0])):
                return triton.InferenceResponse(error=triton.TritonError("not wanted", triton.TritonError.CANCELLED))
        finally:
            paper.unlink()
        if "raise" in texts:
            raise RuntimeError("private")
        shouted = np.array([text.upper().encode() for text in texts], dtype=object)
        lengths = np.array([len(text) for text in texts], dtype=np.int64)
        return triton.InferenceResponse([triton.Tensor("SHOUTED", shouted), triton.Tensor("LENGTHS", lengths)])


def _wait(request: Any, seconds: float) -> bool:
    """Whether it was wanted for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if request.is_cancelled():
            return False
        time.sleep(0.005)
    return True
