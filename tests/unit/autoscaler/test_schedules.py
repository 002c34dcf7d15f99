"""Business hours by the clock of their place, whatever the summer does to it."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.cron import Cron
from services.autoscaler.domain.rules import Floor
from services.autoscaler.domain.schedules import Schedule, _last_fired, scheduled

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


def test_many_schedules_are_searched_once_a_minute_each() -> None:
    many = [OFFICE._replace(duration_s=OFFICE.duration_s + number) for number in range(600)]
    scheduled(many, at("2026-03-04 07:58:00"), lead_s=150)
    searched = _last_fired.cache_info().misses
    scheduled(many, at("2026-03-04 07:58:01"), lead_s=150)
    assert _last_fired.cache_info().misses == searched


ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "America/St_Johns", "Asia/Kathmandu")
CRONS = ("0 8 * * 1-5", "30 2 * * *", "59 1 * * *", "0 2 * * *", "*/20 1-3 * * *", "15,45 0 1 * *", "5 23 * 3,4,10 0")


@settings(max_examples=40)
@given(st.integers(0, 365 * 24 * 60), st.sampled_from(ZONES), st.sampled_from(CRONS), st.integers(1, 2_000))
def test_a_schedule_is_on_if_any_minute_of_its_duration_fires(
    minute: int, timezone: str, cron: str, minutes: int
) -> None:
    now_s = at("2026-01-01 00:00", "UTC") + 60 * minute
    parsed, zone = Cron.parse(cron), ZoneInfo(timezone)
    fires = any(
        parsed.matches(datetime.fromtimestamp(now_s - 60 * before, UTC).astimezone(zone)) for before in range(minutes)
    )
    assert Schedule(cron, timezone, minutes * 60.0, 1).is_on(now_s) == fires


@pytest.mark.parametrize("cron", ["45 1 * * *", "59 1 * * *", "15 2 * * *", "30 2 * * *"])
@pytest.mark.parametrize("day", ["2026-04-05", "2026-10-04"])
def test_a_clock_that_is_turned_by_half_an_hour_misses_nothing(cron: str, day: str) -> None:
    """Lord Howe Island's: back from 2:00 to 1:30 in April, and on from 2:00 to 2:30 in October."""
    zone = ZoneInfo("Australia/Lord_Howe")
    noon = datetime.fromisoformat(f"{day} 12:00").replace(tzinfo=zone)
    half_day = [noon.astimezone(UTC) - timedelta(minutes=minutes) for minutes in range(12 * 60)]
    fires = any(Cron.parse(cron).matches(minute.astimezone(zone)) for minute in half_day)
    assert Schedule(cron, "Australia/Lord_Howe", 12 * HOUR_S, 1).is_on(noon.timestamp()) == fires
