"""Business hours by the clock of their place, whatever the summer does to it."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from services.autoscaler.domain.rules import Floor
from services.autoscaler.domain.schedules import Schedule, scheduled

HOUR_S = 3_600.0
OFFICE = Schedule("0 8 * * 1-5", "Asia/Seoul", 10 * HOUR_S, 4)


def at(text: str, timezone: str = "Asia/Seoul") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(timezone)).timestamp()


@pytest.mark.parametrize(
    ("time", "is_on"),
    [
        ("2026-03-04 07:59:59", False),
        ("2026-03-04 08:00:00", True),
        ("2026-03-04 17:59:59", True),
        ("2026-03-04 18:00:00", False),
        ("2026-03-07 12:00:00", False),
    ],
    ids=["too early", "on the minute", "to the last second", "over", "Saturday"],
)
def test_a_schedule_is_on_from_its_cron_for_its_duration(time: str, is_on: bool) -> None:
    assert OFFICE.is_on(at(time)) == is_on


def test_a_worker_is_started_before_the_hour_that_wants_it() -> None:
    assert scheduled([OFFICE], at("2026-03-04 07:58:00"), lead_s=150) == [Floor(4, "schedule 0 8 * * 1-5 Asia/Seoul")]
    assert not scheduled([OFFICE], at("2026-03-04 07:57:00"), lead_s=150)


def test_the_clock_is_the_places_in_summer_too() -> None:
    berlin = OFFICE._replace(timezone="Europe/Berlin")
    assert berlin.is_on(at("2026-03-27 07:30", "UTC")), "winter: 8:30 there"
    assert not berlin.is_on(at("2026-03-27 06:30", "UTC"))
    assert berlin.is_on(at("2026-03-30 06:30", "UTC")), "summer: 8:30 there"


def test_an_hour_that_summer_skips_does_not_fire() -> None:
    skipped = Schedule("30 2 * * *", "Europe/Berlin", HOUR_S, 1)
    assert not skipped.is_on(at("2026-03-29 03:15", "Europe/Berlin"))
    assert skipped.is_on(at("2026-03-30 03:15", "Europe/Berlin"))
