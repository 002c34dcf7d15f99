"""How many of its slots a worker may use: as many as its engine has shown that it can take. Pure.

Up by one as long as that works, down by a share of what is in flight: additive increase, multiplicative decrease, as
TCP has it (Jacobson 1988). So workers that share one engine come to equal parts of it, whatever each began with (Chiu
and Jain 1989).

* An engine that queues calls inside is lowered to the share that it works on, at most by half, the bounds of the
  gradient in Netflix's concurrency-limits. What waits here instead can go to another worker, or be overtaken by a
  higher lane.
* One that refuses a call because it has too many is lowered by half.
* One whose KV-cache is nearly full is lowered by a tenth. When vLLM's is full, it takes the blocks of calls that run,
  and computes these anew from their first token ("preemption", docs.vllm.ai, Optimization and Tuning).

What is in flight is never stopped, so the next cut waits until the last one shows.
"""

from services.worker.domain.engine import Load

LOOK_EVERY_S = 1.5
"""The unit of time here. Not 1 s: llama.cpp looks after a second of silence whether its clients are still there, and
an answer to anybody breaks that silence."""
QUEUES_FOR = 2
"""Looks in a row that see a queue: many prompts that come together are read in some steps of the engine."""
HALF = 0.5
NEARLY_FULL, KEEPS = 0.9, 0.9
"""Of the KV-cache; and how much of the slots is kept then."""
HAS_ROOM = 0.8
"""Less of the KV-cache is taken. Between the two nothing changes: one call more or less is no reason to tremble."""
FORGETS_AFTER = 40
"""Looks at an idle worker, a minute: what was too much then says nothing of the next calls."""


class SlotLimit:
    """Between 1 and the configured number, which is where it begins."""

    def __init__(self, configured: int) -> None:
        self._configured = configured
        self._shown = float(configured)
        """So many ran, and there was room. Not rounded: of small numbers that would take more than of great ones."""
        self._tries_more = False
        """Whether there is one beyond that; it is taken back if it is not needed."""
        self._queued = 0
        """Looks in a row that saw a queue."""
        self._idle = 0
        """Looks in a row that saw nothing in flight."""
        self._is_settled = True
        """No more is in flight than may be: the last cut shows. Only a look finds that, not each call that ends."""

    @property
    def usable(self) -> int:
        """So many tasks may run now."""
        return min(self._configured, int(self._shown + self._tries_more + 1e-9))

    def refused(self, busy: int) -> None:
        """The engine refused a call, having too many, while so many were in flight here."""
        self._cut(busy, HALF)

    def look(self, busy: int, load: Load | None, *, wants_more: bool) -> None:
        """Once in LOOK_EVERY_S: so many are in flight here, and so much in the engine; None: it does not say.

        `wants_more`: for want of a slot no more tasks are taken.
        """
        self._is_settled = busy <= self.usable
        self._queued = self._queued + 1 if load and load.waiting else 0
        self._idle = 0 if busy else self._idle + 1
        if load and self._queued >= QUEUES_FOR:
            self._cut(busy, load.running / (load.running + load.waiting))
        elif load and _fill(load) >= NEARLY_FULL:
            self._cut(busy, KEEPS)
        elif self._idle >= FORGETS_AFTER:
            self._shown = float(self._configured)
        elif not wants_more:
            self._tries_more = False
        elif _has_room(load):
            self._shown = min(self._configured, self._shown + self._tries_more)
            self._tries_more = self._shown < self._configured

    def _cut(self, busy: int, share: float) -> None:
        """From what is in flight, where that is less than may be: only so much was tried."""
        if self._is_settled:
            tried = self._shown + self._tries_more if busy >= self.usable else busy
            self._shown = max(1.0, tried * max(HALF, share))
            self._tries_more, self._is_settled, self._queued = False, False, 0


def _has_room(load: Load | None) -> bool:
    """Of one that does not say so, only a refusal tells that it has none."""
    return load is None or (not load.waiting and _fill(load) < HAS_ROOM)


def _fill(load: Load) -> float:
    return load.kv_cache_use or 0.0
