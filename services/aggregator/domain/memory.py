"""What the fold remembers of runs that are over: two generations, so that forgetting costs nothing."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from immutables import Map

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Memory(Generic[V]):
    """Remembers each key for at least `window_ms` of log time, and at most twice that.

    Keys are dropped a generation at a time: the young become old and the old are forgotten whenever a window has
    passed. Whether a key still counts is decided by its own expiry, so the answer does not depend on when that was.
    """

    window_ms: int
    young: "Map[str, tuple[int, V]]" = Map()  # noqa: RUF009 — an immutables.Map is immutable
    old: "Map[str, tuple[int, V]]" = Map()  # noqa: RUF009
    turned_at: int = 0
    """Log time of the last change of generations."""

    def get(self, key: str, now: int) -> V | None:
        """What is remembered of the key at log time `now`."""
        found = self.young.get(key) or self.old.get(key)
        return found[1] if found is not None and now <= found[0] else None

    def remember(self, key: str, value: V, now: int) -> "Memory[V]":
        """Remembers the key until `now + window_ms`."""
        turned = self._turned(now)
        return Memory(
            self.window_ms, turned.young.set(key, (now + self.window_ms, value)), turned.old, turned.turned_at
        )

    def forget(self, key: str) -> "Memory[V]":
        """Drops one key."""
        young, old = (kept.delete(key) if key in kept else kept for kept in (self.young, self.old))
        return Memory(self.window_ms, young, old, self.turned_at)

    def _turned(self, now: int) -> "Memory[V]":
        if now - self.turned_at <= self.window_ms:
            return self
        # After a silence of two windows the young ones have expired as well; their own expiry says so.
        return Memory(self.window_ms, Map(), self.young, now)

    def __len__(self) -> int:
        return len(self.young) + len(self.old)
