"""Five fields, as every cron reads them."""

from datetime import datetime

import pytest

from schemas.cron import Cron


@pytest.mark.parametrize(
    ("cron", "time", "fires"),
    [
        ("* * * * *", "2026-03-04 11:11", True),
        ("*/15 * * * *", "2026-03-04 11:45", True),
        ("*/15 * * * *", "2026-03-04 11:46", False),
        ("5/20 * * * *", "2026-03-04 11:25", True),
        ("0 9,17 * * *", "2026-03-04 17:00", True),
        ("0 0 1 1 *", "2026-01-01 00:00", True),
        ("0 0 * * 0", "2026-03-08 00:00", True),
        ("0 0 * * 7", "2026-03-08 00:00", True),
        ("0 0 13 * 5", "2026-03-13 00:00", True),
        ("0 0 13 * 5", "2026-03-06 00:00", True),
        ("0 0 13 * 5", "2026-03-07 00:00", False),
    ],
)
def test_cron(cron: str, time: str, fires: bool) -> None:
    assert Cron.parse(cron).matches(datetime.fromisoformat(time)) == fires


@pytest.mark.parametrize(
    ("cron", "complaint"),
    [
        ("0 8 * *", "five fields"),
        ("60 8 * * *", "minute"),
        ("0 24 * * *", "hour"),
        ("0 8 0 * *", "day of the month"),
        ("0 8 * 5-3 *", "month"),
        ("0 8 * * MON", "day of the week"),
        ("*/0 8 * * *", "minute"),
        ("-1 8 * * *", "minute"),
    ],
)
def test_what_is_no_cron_is_refused_by_the_fields_name(cron: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Cron.parse(cron)
