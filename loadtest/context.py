"""What a scenario is given."""

from collections.abc import Callable
from dataclasses import dataclass

from headway.plane.endpoints import Endpoints
from loadtest.generator import Load


@dataclass(frozen=True, slots=True)
class Context:
    """The load to make, the plane to make it on, and somebody to tell."""

    load: Load
    endpoints: Endpoints
    say: Callable[[str], None]
