"""Which backend of a class a task goes to: by when it would be done there, by the time it has left, and by price.

A dedicated backend is paid by the hour, so one task more costs nothing, but it has a queue. A hosted one is paid by
the call, and has none. The cheapest that is done in time is taken; time is what the step has left, less a reserve for
a wait that was guessed too short (`spill_at`: the share of it that may be used up). Where none is in time, the
quickest.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

SPILL_AT = 0.8


class Offer(NamedTuple):
    """What a backend would do for one task."""

    backend: str
    wait_s: float | None
    """Until an engine takes it; None: nobody can tell, since no worker is there or none is heard of."""
    service_s: float
    usd: float
    """For this task, on top of what is paid anyway."""
    spill_at: float = SPILL_AT

    @property
    def done_s(self) -> float | None:
        """From now."""
        return None if self.wait_s is None else self.wait_s + self.service_s


class Choice(NamedTuple):
    """A backend, and why."""

    backend: str
    because: Literal["cheapest in time", "quickest", "unknown"]


def choose(offers: Sequence[Offer], budget_s: float) -> Choice:
    """`budget_s`: what is left to the step's deadline. Of equals the first in the configuration."""
    in_time = [(offer.usd, place) for place, offer in enumerate(offers) if _is_in_time(offer, budget_s)]
    if in_time:
        return Choice(offers[min(in_time)[1]].backend, "cheapest in time")
    known = [(offer.done_s, place) for place, offer in enumerate(offers) if offer.done_s is not None]
    if known:
        return Choice(offers[min(known)[1]].backend, "quickest")
    return Choice(offers[0].backend, "unknown")


def predicted_wait_s(
    outstanding: int, service_s: float, slots: int, replicas: int, ready_in_s: float | None
) -> float | None:
    """Until a task that comes now is taken. `replicas`: starting ones included, unless all of them start.

    A slot is free as soon as fewer are outstanding than there are slots. `ready_in_s`: until the first of the workers
    is ready, 0 where one is; None where no worker is, or starts.
    """
    if ready_in_s is None or not replicas:
        return None
    ahead = max(0, outstanding + 1 - slots * replicas)
    return max(ready_in_s, ahead * service_s / (slots * replicas))


def _is_in_time(offer: Offer, budget_s: float) -> bool:
    return offer.done_s is not None and offer.done_s <= budget_s * offer.spill_at
