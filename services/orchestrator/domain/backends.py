"""Which backend of a class a task goes to: by when it would be done there, by the time it has left, and by price.

A dedicated backend is paid by the hour, so one task more costs nothing, but it has a queue. A hosted one is paid by
the call, and has hardly any. The cheapest that is done in time is taken; time is what the step has left, less a
reserve for a wait that was guessed too short. One without workers, which would have one started for it, is taken
where none that works is in time; where none at all is, the quickest. Pure.
"""

from collections.abc import Sequence
from math import inf
from typing import Literal, NamedTuple

from schemas.models import SPILL_AT


class Offer(NamedTuple):
    """What a backend would do for one task."""

    backend: str
    wait_s: float | None
    """Until an engine takes it; None: nobody can tell, since no worker is there or none is heard of."""
    service_s: float
    usd: float
    """For this task, on top of what is paid anyway."""
    spill_at: float = SPILL_AT
    """Share of the time left that the next cheaper one may use up; what takes longer there spills over to here."""
    is_staffed: bool = True
    """A worker is there or starts; else one is started when a task waits."""

    @property
    def done_s(self) -> float:
        """From now; infinite when nobody can tell."""
        return inf if self.wait_s is None else self.wait_s + self.service_s


class Choice(NamedTuple):
    """A backend, and why."""

    backend: str
    because: Literal["cheapest in time", "quickest", "unknown"]


def choose(offers: Sequence[Offer], budget_s: float) -> Choice:
    """`budget_s`: what is left to the step's deadline. Of equals the first in the configuration."""
    return ranked(offers, budget_s)[0]


def ranked(offers: Sequence[Offer], budget_s: float) -> list[Choice]:
    """All of them, the best first: the next is for a task that the one before cannot be given."""
    known = [offer for offer in offers if offer.wait_s is not None]
    by_price = sorted(known, key=lambda offer: offer.usd)
    next_dearer = [*by_price[1:], *by_price[-1:]]
    in_time = [
        offer
        for offer, dearer in zip(by_price, next_dearer, strict=True)
        if offer.done_s <= budget_s * dearer.spill_at
    ]
    in_time.sort(key=lambda offer: not offer.is_staffed)
    late = sorted((offer for offer in known if offer not in in_time), key=lambda offer: offer.done_s)
    return [
        *(Choice(offer.backend, "cheapest in time") for offer in in_time),
        *(Choice(offer.backend, "quickest") for offer in late),
        *(Choice(offer.backend, "unknown") for offer in offers if offer.wait_s is None),
    ]


def predicted_wait_s(outstanding: float, service_s: float, slots: int, ready_in_s: float | None) -> float | None:
    """Until a task that comes now is taken. `slots`: of all workers that are ready; of those that start, if none is.

    A slot is free as soon as fewer are outstanding than there are slots. `ready_in_s`: until the first of the workers
    is ready, 0 where one is; None where no worker is, or starts.
    """
    if ready_in_s is None or not slots:
        return None
    ahead = max(0.0, outstanding + 1 - slots)
    return max(ready_in_s, ahead * service_s / slots)
