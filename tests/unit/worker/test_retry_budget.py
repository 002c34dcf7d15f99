from hypothesis import given
from hypothesis import strategies as st

from services.worker.domain.retry_budget import RetryBudget


def test_a_new_worker_may_retry_ten_times() -> None:
    budget = RetryBudget()
    assert [budget.spend() for _ in range(11)] == [True] * 10 + [False]


def test_ten_attempts_earn_one_retry() -> None:
    budget = RetryBudget()
    while budget.spend():
        pass
    for _ in range(11):  # one more than ten: tenths do not add up to one exactly
        budget.attempted()
    assert budget.spend()
    assert not budget.spend()


def test_a_quiet_time_saves_up_no_more_than_ten() -> None:
    budget = RetryBudget()
    for _ in range(10_000):
        budget.attempted()
    assert [budget.spend() for _ in range(11)].count(True) == 10


@given(st.lists(st.booleans(), max_size=1_000))
def test_retries_stay_within_ten_and_a_tenth_of_attempts(failures: list[bool]) -> None:
    budget, retries = RetryBudget(), 0
    for attempts, failure in enumerate(failures, start=1):
        budget.attempted()
        retries += failure and budget.spend()
        assert retries <= 10 + 0.1 * attempts + 1e-6
