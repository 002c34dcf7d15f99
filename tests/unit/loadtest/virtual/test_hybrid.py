"""Hosted workers for spikes, beside a fleet of one's own."""

import pytest

from loadtest.virtual import hybrid


@pytest.fixture(autouse=True)
def few_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One spike in ten minutes, from minute eight to ten."""
    monkeypatch.setattr(hybrid, "UNTIL_S", 600.0)
    monkeypatch.setattr(hybrid, "EVERY_S", 600.0)


def test_what_is_hosted_is_paid_by_the_call() -> None:
    found = hybrid.simulated(hybrid.BASE_WORKERS, hybrid.BASE_WORKERS, hosted=True, seed=0)
    assert 0.0 < found["hosted_share"] < 0.5
    own_usd = hybrid.BASE_WORKERS * hybrid.OWN.usd_per_hour / 6
    assert found["usd"] == pytest.approx(own_usd + found["hosted_usd"], abs=0.02)


def test_without_a_spike_nothing_is_hosted_at_whatever_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hybrid, "SPIKE_TIMES", 1.0)
    found = hybrid.measure()
    assert found["hybrid"]["hosted_share"] == 0.0
    assert found["a_fifth_is_saved_until_times"] is None
