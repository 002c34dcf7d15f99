"""Gates for admissions under test."""

from services.chassis.clock import LogClock
from services.chassis.metrics import Metrics
from services.orchestrator.domain.door import Announcement, Door
from services.orchestrator.gate import Gate


class Announcements:
    """What is announced: `open_runs` in the only partition, or nothing."""

    def __init__(self, open_runs: int | None = 0) -> None:
        self.open_runs = open_runs
        self.at_ms = 1_000

    def __call__(self) -> list[Announcement]:
        return [] if self.open_runs is None else [Announcement(self.at_ms, {0: self.open_runs})]


def gate(said: Announcements | None = None, max_open_runs: int = 100, metrics: Metrics | None = None) -> Gate:
    """Of an empty plane, unless told otherwise."""
    clock = LogClock()
    clock.observe(1_000)
    return Gate(said or Announcements(), Door(max_open_runs, partitions=1), clock, metrics or Metrics())
