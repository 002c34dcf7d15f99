"""Retries stay within ten and a tenth of the attempts, in whatever order attempts and failures come."""

from hypothesis import given
from hypothesis import strategies as st

from services.worker.domain.retry_budget import RetryBudget


@given(st.lists(st.sampled_from(["attempt", "attempt", "attempts", "failure", "failures"]), max_size=300))
def test_the_budget_is_a_bucket_of_ten_filled_by_tenths(steps: list[str]) -> None:
    """Counted in whole tenths; where floats leave the last tenth open, either answer will do."""
    budget, tenths, attempts, retries = RetryBudget(), 100, 0, 0
    for step in steps:
        for _ in range(15 if step.endswith("s") else 1):
            if step.startswith("attempt"):
                budget.attempted()
                attempts += 1
                tenths = min(100, tenths + 1)
            elif budget.spend():
                assert tenths >= 10
                tenths -= 10
                retries += 1
            else:
                assert tenths <= 10
    assert retries <= 10 + attempts // 10
