"""Headway, the event-driven inference plane for compound AI: what Python users import.

* `HeadwayClient` asks pipelines over Kafka.
* `StepContext` and `StepError` are what a function engine's callable works with.
* `headway.testing` runs a pipeline in process, for tests.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.client import HeadwayClient
    from headway.functions import StepContext, StepError

__all__ = ["HeadwayClient", "StepContext", "StepError"]

_HOMES = {
    "HeadwayClient": "headway.client",
    "StepContext": "headway.functions",
    "StepError": "headway.functions",
}


def __getattr__(name: str) -> Any:
    """Loaded on first use: a function's author needs no Kafka client, and `headway --help` neither."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
