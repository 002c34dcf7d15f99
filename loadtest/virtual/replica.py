"""A worker of a simulation."""

from dataclasses import dataclass
from typing import Literal

State = Literal["starting", "warm", "asleep", "draining", "gone"]


@dataclass(slots=True, eq=False)
class Replica:
    """One worker. Times are in seconds."""

    host: str
    state: State
    since_s: float
    """When it came into its state."""
    ready_s: float = 0.0
    """When it became ready, for the last time."""
    woken: bool = False
    """It became ready from its sleep, not from nothing."""
    sleeps_next: bool = False
    """What it does once it has started or drained: fall asleep."""
    busy: int = 0
