"""A model that answers a call N times. Run by Triton, in its own Python."""

from typing import Any

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    """N → N times I."""

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            for number in range(int(triton.get_input_tensor_by_name(request, "N").as_numpy()[0])):
                half = np.array([number / 2], dtype=np.float32)
                sender.send(triton.InferenceResponse([triton.Tensor("I", half)]))
            sender.send(flags=triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
