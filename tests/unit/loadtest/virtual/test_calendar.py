"""In virtual time everything happens when it is due, and nothing before."""

from loadtest.virtual.calendar import Calendar


def test_what_is_due_first_happens_first_and_of_two_the_one_entered_first() -> None:
    calendar, happened = Calendar(), list[str]()
    calendar.at(2.0, lambda: happened.append("late"))
    calendar.at(1.0, lambda: happened.append("first"))
    calendar.at(1.0, lambda: happened.append("second"))
    calendar.run(1.5)
    assert happened == ["first", "second"]
    assert calendar.now_s == 1.5
    calendar.run(2.0)
    assert happened == ["first", "second", "late"]


def test_what_happens_may_enter_what_happens_next() -> None:
    calendar, times = Calendar(), list[float]()
    calendar.after(1.0, lambda: calendar.after(1.0, lambda: times.append(calendar.now_s)))
    calendar.run(10.0)
    assert times == [2.0]


def test_what_is_done_again_and_again_begins_at_once() -> None:
    calendar, times = Calendar(), list[float]()
    calendar.every(2.0, lambda: times.append(calendar.now_s))
    calendar.run(5.0)
    assert times == [0.0, 2.0, 4.0]
