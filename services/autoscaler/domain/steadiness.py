"""Up at once, down slowly: the stabilisation window.

A wish for more is followed at once. Less is granted once a window at most, and only when everything wished for in the
window was less; then down to the most that was wished for in its later half. Kubernetes' autoscaler follows the
window's maximum as it sinks: a load that falls in a minute takes nine steps from ten to one. The later half has
settled, so one step does.
"""

from typing import NamedTuple

from schemas.fleet import Steady, Wished


class Wish(NamedTuple):
    """How many workers the load asked for at a time."""

    at_s: float
    replicas: int


class Steadied(NamedTuple):
    """A number of workers, and why it is not less yet."""

    replicas: int
    changed_at_s: float
    wishes: tuple[Wish, ...]
    """Of the last window: those that a later one has not exceeded, so the first is the most."""
    was_lowered: bool = False
    """The last change took some away."""

    @classmethod
    def of(cls, told: Steady) -> "Steadied":
        """As another leader has told it."""
        wishes = tuple(Wish(wished.at / 1_000, wished.replicas) for wished in told.wishes)
        return cls(told.replicas, told.changed_at / 1_000, wishes, told.lowered)

    def told(self) -> Steady:
        """For the next leader."""
        wishes = tuple(Wished(at=round(wish.at_s * 1_000), replicas=wish.replicas) for wish in self.wishes)
        changed_at = round(self.changed_at_s * 1_000)
        return Steady(replicas=self.replicas, changed_at=changed_at, lowered=self.was_lowered, wishes=wishes)

    def was_just_lowered(self, now_s: float, window_s: float) -> bool:
        """Within the window."""
        return self.was_lowered and now_s - self.changed_at_s < window_s


def begin(replicas: int, now_s: float) -> Steadied:
    """What is there when nobody knows yet what was wished for: it stays for a window."""
    return Steadied(replicas, now_s, (Wish(now_s, replicas),))


def steadied(before: Steadied, wish: int, now_s: float, window_s: float, least: int = 0) -> Steadied:
    """One look later. `least`: not below it now, however little was wished for."""
    if now_s < before.wishes[-1].at_s - window_s:  # the clock was set back: what was wished for is no longer ahead
        before = begin(before.replicas, now_s)
    wishes = _remembered(before.wishes, Wish(now_s, wish), now_s - window_s)
    if wish > before.replicas:
        return Steadied(wish, now_s, wishes)
    lower = max(_most_since(wishes, now_s - window_s / 2), least)
    if lower < before.replicas and now_s - before.changed_at_s >= window_s and wishes[0].replicas < before.replicas:
        return Steadied(lower, now_s, wishes, was_lowered=True)
    return before._replace(wishes=wishes)


def _remembered(wishes: tuple[Wish, ...], newest: Wish, since_s: float) -> tuple[Wish, ...]:
    kept = [wish for wish in wishes if wish.at_s > since_s and wish.replicas > newest.replicas]
    return (*kept, newest)


def _most_since(wishes: tuple[Wish, ...], since_s: float) -> int:
    return max(wish.replicas for wish in wishes if wish.at_s > since_s)
