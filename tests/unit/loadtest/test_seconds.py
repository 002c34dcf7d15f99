"""A load test second by second."""

from loadtest.seconds import Second, Seconds


def test_every_second_has_what_ended_in_it() -> None:
    seconds = Seconds()
    for number in range(100):
        seconds.record(number / 100, (number + 1) / 1_000, succeeded=True)
    seconds.record(1.2, 0.5, succeeded=False)
    assert seconds.all == [Second(100, 0, 50.0, 99.0), Second(0, 1, None, None)]


def test_a_second_in_which_nothing_ended_is_there() -> None:
    seconds = Seconds()
    seconds.record(0.1, 0.004, succeeded=True)
    seconds.record(3.1, 0.008, succeeded=True)
    assert seconds.as_json() == {
        "completed": [1, 0, 0, 1],
        "failed": [0, 0, 0, 0],
        "p50_ms": [4.0, None, None, 8.0],
        "p99_ms": [4.0, None, None, 8.0],
    }


def test_nothing_ended_in_no_second() -> None:
    assert Seconds().all == []
