"""llama.cpp's HTTP server as a process of its own: a child of the worker, run as a script.

One line of JSON on stdin says what to serve; one line on stdout says where. It lives as long as its stdin stays
open, so it cannot outlive the worker, however that one ends.
"""

import ctypes
import json
import os
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the parent is gone."""
    if sys.platform == "linux":  # even when the interpreter is stuck in native code and never sees stdin close
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    wanted = json.loads(sys.stdin.readline())
    server = _serve(**wanted)
    print(json.dumps({"address": server.listening_address}), flush=True)  # noqa: T201
    sys.stdin.read()
    os._exit(0)  # without waiting for answers that nobody will read


def _serve(model: str, slots: int, context: int, threads: int, api_key: str) -> Any:
    from xllamacpp import CommonParams, Server

    params = CommonParams()
    params.model.path = model
    params.n_parallel = slots
    params.n_ctx = context
    params.fit_params = False  # by default llama.cpp loads the model once more, to find a context that fits
    params.warmup = False  # the engine's health check is an inference
    params.cpuparams.n_threads = threads
    params.n_batch = 256  # between two batches calls are aborted, and others get their token
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [api_key]
    params.ui = False
    params.endpoint_slots = True
    params.endpoint_metrics = True
    params.cache_ram_mib = 0  # by default llama.cpp keeps up to 8 GiB of old prompts
    params.verbosity = 1  # errors: warnings are one a call
    return Server(params)


if __name__ == "__main__":
    main()
