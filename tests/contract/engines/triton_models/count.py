"""A model that answers a call N times, while it is still wanted. Run by Triton, in its own Python."""

import time
from typing import Any

import numpy as np
import triton_python_backend_utils as triton

PAUSE_S = 0.005


class TritonPythonModel:
    """N → N times I. The server tells how many it has sent: `answers_sent`."""

    def initialize(self, _: dict[str, str]) -> None:
        self.family = triton.MetricFamily("answers_sent", "Answers sent.", triton.MetricFamily.COUNTER)
        self.sent = self.family.Metric(labels={})  # which ends with its family

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            for number in range(int(triton.get_input_tensor_by_name(request, "N").as_numpy()[0])):
                if sender.is_cancelled():
                    break
                half = np.array([number / 2], dtype=np.float32)
                sender.send(triton.InferenceResponse([triton.Tensor("I", half)]))
                self.sent.increment(1)
                time.sleep(PAUSE_S)
            sender.send(flags=triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
