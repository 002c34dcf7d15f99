"""Floors by the clock: business hours are known before any load is."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from schemas.cron import Cron
from services.autoscaler.domain.rules import Floor

MINUTE = timedelta(minutes=1)


class Schedule(NamedTuple):
    """From each time that `cron` fires in the timezone, for a while: a floor."""

    cron: str
    timezone: str
    duration_s: float
    min_replicas: int

    def is_on(self, at_s: float) -> bool:
        """At a time of the log, in seconds since the epoch."""
        at = datetime.fromtimestamp(at_s, UTC)
        fired = _last_fired(self, at.replace(second=0, microsecond=0))
        return fired is not None and fired > at - timedelta(seconds=self.duration_s)


@lru_cache(maxsize=1_000)
def _last_fired(schedule: Schedule, minute: datetime) -> datetime | None:
    """When it fired last, if it still matters. Asked every second: a working day is searched once a minute.

    Looked for backwards minute by minute in real time: a day whose clock is turned has all of its minutes.
    """
    cron, zone = Cron.parse(schedule.cron), ZoneInfo(schedule.timezone)
    begin = minute - timedelta(seconds=schedule.duration_s)
    while minute > begin:
        if cron.matches(minute.astimezone(zone)):
            return minute
        minute -= MINUTE
    return None


def scheduled(schedules: Iterable[Schedule], at_s: float, lead_s: float = 0.0) -> list[Floor]:
    """The floors that hold now, or will when a worker started now is ready: `lead_s`."""
    return [
        Floor(schedule.min_replicas, f"schedule {schedule.cron} {schedule.timezone}")
        for schedule in schedules
        if schedule.is_on(at_s) or schedule.is_on(at_s + lead_s)
    ]
