"""How long a part that died waits before it is started again."""

from headway.plane.supervisor import Backoff


def test_it_doubles_from_half_a_second_to_ten() -> None:
    backoff = Backoff()
    assert [backoff.after(lived_s=1) for _ in range(7)] == [0.5, 1, 2, 4, 8, 10, 10]


def test_it_begins_anew_after_thirty_healthy_seconds() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.after(lived_s=29.9)
    assert backoff.after(lived_s=30) == 0.5
    assert backoff.after(lived_s=1) == 1


def test_it_does_not_count_an_orderly_end_as_a_failure() -> None:
    backoff = Backoff()
    assert [backoff.after(lived_s=1, in_order=True) for _ in range(3)] == [0.5, 0.5, 0.5]
    assert [backoff.after(lived_s=1) for _ in range(2)] == [1, 2]


def test_it_counts_ends_in_a_row() -> None:
    backoff = Backoff()
    for lived_s in (1, 29.9, 2):
        backoff.after(lived_s)
    assert backoff.in_a_row == 3
    backoff.after(lived_s=30)
    assert backoff.in_a_row == 1
