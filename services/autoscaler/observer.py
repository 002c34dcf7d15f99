"""Puts together what is seen of every queue and of every host: the lag, and what the fleet says of itself."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from schemas.fleet import HostStatus, ScalingDecision, ServiceStatus, WorkerStatus
from schemas.models import Queue
from services.autoscaler.collector import Collector
from services.autoscaler.domain.fleet import fleet_seen, hosts_seen, service_s, start_s
from services.autoscaler.domain.hosts import Host
from services.autoscaler.domain.observation import Observation
from services.autoscaler.domain.watched import Watched
from services.chassis.clock import LogClock
from services.chassis.fleet import FOLLOW_TIMEOUT_S, PUBLISH_EVERY_S, FleetLog, FleetView, in_force
from services.chassis.kafka.types import Record

HEARD_FOR_S = PUBLISH_EVERY_S + 1.0
"""Of the topic, up to now: all who live have spoken in that time, and who has not is not there."""
BREAK_S = 2 * PUBLISH_EVERY_S
"""Nobody is heard for so long, then everybody again, one by one: those that come last must not be taken for dead."""


class Sight(NamedTuple):
    """What is seen at one moment."""

    queues: Mapping[str, Observation]
    """By label."""
    hosts: list[Host] | None
    """None while the fleet is not heard."""


class Observer:
    """Hears the fleet, and knows for how long it has done so without a break. Times are the log's."""

    def __init__(self, instance: str, collector: Collector, view: FleetView, clock: LogClock) -> None:
        """`instance`: this process's own, which says on the fleet topic that it lives, as everybody does."""
        self._instance = instance
        self._collector = collector
        self.view = view
        self._clock = clock
        self._since_ms: int | None = None
        self._heard_ms: int | None = None

    async def run(self, log: FleetLog) -> None:
        """A component: keeps the view current."""
        while True:
            self.add(await log.follow(FOLLOW_TIMEOUT_S))

    def add(self, records: Sequence[Record]) -> None:
        """Takes records of the fleet topic in log order. What is older than the topic itself there is not."""
        if self._since_ms is None and records:
            self._since_ms = records[0].timestamp if records[0].offset else 0
        self.view.add(records)
        for at_ms, status in self.view.stamped(ServiceStatus):
            if status.instance == self._instance:
                self._on_own(at_ms)

    def _on_own(self, at_ms: int) -> None:
        if self._heard_ms is not None and at_ms - self._heard_ms > BREAK_S * 1_000:
            self._since_ms = at_ms
        self._heard_ms = at_ms

    def hears(self) -> bool:
        """Who hears itself hears the others: only then is a worker that nobody speaks of one that is not there."""
        return any(status.instance == self._instance for status in self.view.of(ServiceStatus))

    def decided(self) -> Mapping[str, ScalingDecision]:
        """By queue label, what the last leader said a few seconds ago; nothing when that was longer ago."""
        return in_force(self.view.of(ScalingDecision))

    def why_not_yet(self) -> str | None:
        """What is missing before the first look: with less, what runs would be taken for what is not there."""
        if not self._collector.has_looked:
            return "the lag was not read yet"
        return None if self._knows_fleet() else f"the fleet has not been heard for {HEARD_FOR_S:.0f} s"

    def look(self, watched: Watched) -> Sight:
        """Now. What is older than a few seconds is not known."""
        sample = self._collector.fresh()
        knows_fleet = self._knows_fleet()
        workers, hosts = self.view.of(WorkerStatus), self.view.stamped(HostStatus)

        def observed(queue: Queue) -> Observation:
            fleet = fleet_seen(queue, workers, (host for _, host in hosts)) if knows_fleet else None
            return Observation(sample.seen(queue), service_s(queue, workers), fleet, start_s(queue, workers))

        queues = {queue.label: observed(queue) for queue in watched.queues}
        return Sight(queues, hosts_seen(hosts, workers, watched.queues) if knows_fleet else None)

    def _knows_fleet(self) -> bool:
        """Whether it has been heard for long enough, and still is."""
        now_ms = self._clock.now_ms()
        if now_ms is None or self._heard_ms is None or self._since_ms is None:
            return False
        return now_ms - self._heard_ms <= BREAK_S * 1_000 and now_ms - self._since_ms >= HEARD_FOR_S * 1_000
