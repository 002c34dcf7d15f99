"""What vLLM runs in each of its own processes, by the entry point `vllm.general_plugins`.

They hold the GPU's memory, and would keep it when their worker is killed: vLLM's core waits for it for ever.
"""

import ctypes
import multiprocessing
import os
import signal
import sys

from services.chassis.settings import secret

DIES_WITH_WORKER = "HEADWAY_VLLM_DIES_WITH_WORKER"
"""Set where vLLM runs in a worker; a `vllm serve` of the same environment is left alone."""
PR_SET_PDEATHSIG = 1


def die_with_worker() -> None:
    """This process is killed when the one that started it dies, however that happens."""
    parent = multiprocessing.parent_process()
    if parent is None or secret(DIES_WITH_WORKER) is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if not parent.is_alive():  # it died before we asked
        os._exit(1)
