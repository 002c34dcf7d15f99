"""Workers in virtual time: what they load, wait for and cost; nothing that was submitted is lost."""

import random

import pytest

from loadtest.virtual.calendar import Calendar
from loadtest.virtual.model import Model
from loadtest.virtual.pool import Pool, usd

MODEL = Model("llm", load_s=100.0, service_s=2.0, slots=1, usd_per_hour=36.0)


class Exact(Model):
    """Every task takes the same time."""

    def draw_s(self, dice: random.Random) -> float:
        return self.service_s


@pytest.fixture
def calendar() -> Calendar:
    return Calendar()


@pytest.fixture
def pool(calendar: Calendar) -> Pool:
    return Pool(Exact(*MODEL), calendar, random.Random(0))


def submit(pool: Pool, calendar: Calendar, times: int = 1) -> list[float]:
    """Seconds at which each was done."""
    done: list[float] = []
    for _ in range(times):
        pool.submit(lambda: done.append(calendar.now_s))
    return done


def test_a_task_waits_for_the_load_and_is_then_served(pool: Pool, calendar: Calendar) -> None:
    done = submit(pool, calendar)
    pool.start("a")
    calendar.run(200.0)
    assert done == [102.0]
    assert (pool.tally.colds, pool.tally.wakes, pool.tally.cold_s) == (1, 0, 100.0)


def test_a_sleeper_wakes_in_a_tenth_of_the_time(pool: Pool, calendar: Calendar) -> None:
    pool.put("a", "asleep")
    done = submit(pool, calendar)
    pool.wake(pool.replicas[0])
    calendar.run(200.0)
    assert done == [12.0]
    assert (pool.tally.colds, pool.tally.wakes, pool.tally.cold_s) == (0, 1, 10.0)


def test_what_waits_for_busy_workers_does_not_wait_for_a_load(pool: Pool, calendar: Calendar) -> None:
    pool.put("a", "warm")
    assert submit(pool, calendar, 3) == []
    assert (pool.busy, pool.outstanding) == (1, 3)
    calendar.run(200.0)
    assert pool.tally.wait_s == [0.0, 2.0, 4.0]
    assert pool.tally.colds == 0


def test_what_waits_while_another_worker_loads_waits_for_the_load(pool: Pool, calendar: Calendar) -> None:
    pool.put("a", "warm")
    pool.start("b")
    submit(pool, calendar, 3)
    calendar.run(200.0)
    assert pool.tally.colds == 2


def test_a_worker_drains_before_it_goes(pool: Pool, calendar: Calendar) -> None:
    pool.put("a", "warm")
    done = submit(pool, calendar, 2)
    pool.retire(pool.replicas[0])
    calendar.run(200.0)
    assert done == [2.0], "it finished what it had, and took nothing more"
    assert not pool.replicas


def test_one_that_falls_asleep_drains_too_and_can_be_woken(pool: Pool, calendar: Calendar) -> None:
    pool.put("a", "warm")
    done = submit(pool, calendar, 2)
    pool.retire(pool.replicas[0], sleeps_next=True)
    calendar.run(50.0)
    assert (done, pool.count("asleep")) == ([2.0], 1)
    pool.wake(pool.replicas[0])
    calendar.run(100.0)
    assert done == [2.0, 62.0]
    assert pool.count("warm") == 1


def test_a_load_that_is_cancelled_leaves_nothing(pool: Pool, calendar: Calendar) -> None:
    pool.start("a")
    pool.retire(pool.replicas[0])
    calendar.run(200.0)
    assert not pool.replicas


def test_what_a_dead_worker_had_is_done_by_another(pool: Pool, calendar: Calendar) -> None:
    pool.put("a", "warm")
    done = submit(pool, calendar)
    pool.lose(pool.replicas[0])
    pool.start("b")
    calendar.run(200.0)
    assert done == [102.0]


def test_a_worker_costs_from_its_start_and_a_tenth_while_it_sleeps(pool: Pool, calendar: Calendar) -> None:
    pool.start("a")
    pool.put("b", "asleep")
    calendar.run(1_000.0)
    assert usd(pool) == pytest.approx(10.0 + 1.0)


def test_service_times_spread_about_their_mean() -> None:
    dice = random.Random(1)
    drawn = [MODEL.draw_s(dice) for _ in range(20_000)]
    mean = sum(drawn) / len(drawn)
    assert mean == pytest.approx(2.0, rel=0.02)
    assert (sum((each - mean) ** 2 for each in drawn) / len(drawn)) ** 0.5 == pytest.approx(1.0, rel=0.05)
