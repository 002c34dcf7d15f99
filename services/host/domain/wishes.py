"""Which workers a host is to keep: as it was ordered, or without an order as the configuration says.

Either way only of queues that are configured, and of classes that may run here.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from schemas.definitions import definition_of
from schemas.fleet import Kept
from schemas.models import Queue
from services.host.domain.orders import Order
from services.host.domain.replicas import Replica

NONE = Kept()


class Wish(NamedTuple):
    """A worker that is to be there."""

    queue: Queue
    asleep: bool = False


Wishes = Mapping[Replica, Wish]


def allowed(queues: Iterable[Queue], model_classes: Collection[str]) -> list[Queue]:
    """Queues of these classes; none named: all."""
    return [queue for queue in queues if not model_classes or queue.model_class in model_classes]


def wishes(queues: Iterable[Queue], order: Order | None) -> Wishes:
    """By place, slow classes first: they load the longest, and not all may start at once.

    The first numbers are awake, and stay the longest: of fewer workers it is the last that go.
    """
    in_turn = sorted(queues, key=lambda queue: queue.rank != "slow")
    return {replica: wish for queue in in_turn for replica, wish in _of(queue, _kept(queue, order))}


def unknown(queues: Iterable[Queue], order: Order) -> Iterator[str]:
    """Labels in an order that stand for no queue here: the configuration is another one, or the allow-list."""
    known = {queue.label for queue in queues}
    return (label for label, kept in order.queues.items() if label not in known and kept != NONE)


def _of(queue: Queue, kept: Kept) -> Iterator[tuple[Replica, Wish]]:
    version = definition_of(queue)
    for number in range(kept.warm + kept.asleep):
        yield Replica(queue.label, number, version), Wish(queue, asleep=number >= kept.warm)


def _kept(queue: Queue, order: Order | None) -> Kept:
    """Never more of a queue than it may have anywhere."""
    scaling = queue.scaling
    if order is None:
        return Kept(warm=0 if scaling.tier == "zero" else scaling.min_replicas)
    kept, most = order.queues.get(queue.label, NONE), scaling.max_replicas
    return Kept(warm=min(kept.warm, most), asleep=min(kept.asleep, most))
