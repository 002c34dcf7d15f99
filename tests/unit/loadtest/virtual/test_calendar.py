"""Virtual time."""

from loadtest.virtual.calendar import Calendar


def test_nothing_happens_before_time_runs() -> None:
    """A plane is furnished after it is made: what looks at it every second must not see it empty."""
    calendar, seen = Calendar(), list[float]()
    calendar.every(2.0, lambda: seen.append(calendar.now_s))
    assert seen == []
    calendar.run(5.0)
    assert seen == [0.0, 2.0, 4.0]
