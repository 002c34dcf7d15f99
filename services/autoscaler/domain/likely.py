"""Which backend of a class a call will be given to, as far as can be told when its run starts: it is pre-warmed.

Dispatch decides for each task, by what waits where. It gives none to a backend without workers while one that works
is in time; so such a one is started ahead only if its worker, paid by the hour, costs less than the calls that it
takes over.
"""

from collections.abc import Sequence
from typing import NamedTuple

from schemas.tasks import Price

USUAL_TOKENS = 256
"""Of a call's input, and of its output: assumed, to compare prices by."""
HOUR_S = 3_600.0


class Backing(NamedTuple):
    """One backend of a class."""

    label: str
    price: Price
    is_staffed: bool
    """A worker is there, or starts."""
    start_s: float = 0.0
    """Until a worker that is started now is ready."""

    @property
    def call_usd(self) -> float:
        """What a usual call costs on top of what is paid by the hour."""
        tokens_usd = (self.price.input_per_mtok_usd + self.price.output_per_mtok_usd) * USUAL_TOKENS / 1e6
        return self.price.call_usd + tokens_usd


def likely(backends: Sequence[Backing], calls_per_s: float, budget_s: float) -> Backing:
    """`calls_per_s`: of the class. `budget_s`: what a call may wait for a start. Of equals the first is taken."""
    staffed = [each for each in backends if each.is_staffed]
    if not staffed:
        in_time = [each for each in backends if each.start_s <= budget_s]
        return _cheapest(in_time) if in_time else min(backends, key=lambda each: each.start_s)
    working = _cheapest(staffed)
    calls_an_hour = calls_per_s * HOUR_S
    saving = [
        each
        for each in backends
        if each.price.replica_hour_usd + each.call_usd * calls_an_hour < working.call_usd * calls_an_hour
    ]
    return _cheapest([working, *saving])


def _cheapest(backends: Sequence[Backing]) -> Backing:
    return min(backends, key=lambda each: each.call_usd)
