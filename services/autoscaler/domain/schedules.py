"""Floors by the clock: business hours are known before any load is."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from schemas.cron import Cron
from services.autoscaler.domain.rules import Floor

MINUTE, HALF_HOUR = timedelta(minutes=1), 30
MAX_ASKED = 10_000
"""Moments that are remembered, two of each schedule. Of fewer each would be searched for anew every second."""


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


@lru_cache(maxsize=MAX_ASKED)
def _last_fired(schedule: Schedule, minute: datetime) -> datetime | None:
    """When it fired last, if it still matters. Asked every second: a working day is searched once a minute.

    Looked for backwards in real time: a day whose clock is turned has all of its minutes.
    """
    cron, zone = Cron.parse(schedule.cron), ZoneInfo(schedule.timezone)
    begin = minute - timedelta(seconds=schedule.duration_s)
    while minute > begin:
        local = minute.astimezone(zone)
        if cron.matches(local):
            return minute
        minute -= MINUTE if cron.matches_hour(local) else _to_half_hour_before(local)
    return None


def _to_half_hour_before(local: datetime) -> timedelta:
    """Past minutes of one hour. Not the whole hour: somewhere clocks are turned by half of one."""
    return (local.minute % HALF_HOUR + 1) * MINUTE


def scheduled(schedules: Iterable[Schedule], at_s: float, lead_s: float = 0.0) -> list[Floor]:
    """The floors that hold now, or will when a worker started now is ready: `lead_s`."""
    return [
        Floor(schedule.min_replicas, f"schedule {schedule.cron} {schedule.timezone}")
        for schedule in schedules
        if schedule.is_on(at_s) or schedule.is_on(at_s + lead_s)
    ]
