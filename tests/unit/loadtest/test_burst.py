"""What the burst promises, and the plane that it wants."""

from typing import Any

import pytest

from loadtest.elastic import Followed, Kind
from loadtest.scenarios import burst
from schemas.base import Priority
from services.chassis.config.folder import load_folder

VERDICT = {"failed": 0, "lost": 0, "conflicting": 0, "latency_ms": {"max": 21_000.0}}
GOOD = Followed(
    needed=7.0, base=1, peak=7, peak_ratio=10.0, scale_out_s=9.0, back_s=130.0, over_provision=0.2,
    lag_peak_s=8.0, lag_over_s=1.0,
)  # fmt: skip


def broken(verdict: dict[str, Any], found: Followed, recovered_s: float | None = 12.0) -> set[str]:
    kept = burst.promises(VERDICT | verdict, {"embedding": found}, [2.0, recovered_s])
    return {name for name, is_kept in kept.items() if not is_kept}


@pytest.mark.parametrize(
    ("verdict", "found", "recovered_s", "expected"),
    [
        ({}, GOOD, 12.0, set()),
        ({"failed": 1}, GOOD, 12.0, {"nothing_fails"}),
        ({"lost": 1}, GOOD, 12.0, {"nothing_lost"}),
        ({"conflicting": 1}, GOOD, 12.0, {"no_conflict"}),
        ({"latency_ms": {"max": 120_001.0}}, GOOD, 12.0, {"no_run_late"}),
        ({}, GOOD, 15.1, {"recovers_soon"}),
        ({}, GOOD, None, {"recovers_soon"}),
        ({}, GOOD._replace(peak=9), 12.0, {"embedding_follows_its_rate"}),
        ({}, GOOD._replace(lag_over_s=10.1), 12.0, {"embedding_catches_up"}),
        ({}, GOOD._replace(back_s=241.0), 12.0, {"embedding_goes_back"}),
        ({}, GOOD._replace(back_s=None), 12.0, {"embedding_goes_back"}),
    ],
)
def test_each_promise_is_broken_by_what_breaks_it(
    verdict: dict[str, Any], found: Followed, recovered_s: float | None, expected: set[str]
) -> None:
    assert broken(verdict, found, recovered_s) == expected


def test_the_classes_differ_in_nothing_but_how_often_they_are_called_and_can_follow_ten_times_the_rate() -> None:
    bundle, _ = load_folder(burst.CONFIG)
    assert bundle is not None
    classes = bundle.model_classes
    assert classes.keys() == burst.SHARES.keys()
    assert len({each.model_dump_json() for each in classes.values()}) == 1
    for name, each in classes.items():
        most = Kind(burst.SHARES[name], each.slots, 2.0).workers(burst.RATE_PER_S * burst.TIMES)
        assert most * 1.5 <= each.scaling.max_replicas <= len(each.lanes.of(Priority.INTERACTIVE))


def test_a_figure_of_all_classes_is_that_of_the_worst() -> None:
    slow = GOOD._replace(scale_out_s=12.0, lag_peak_s=3.0, needed=3.5, over_provision=0.5)
    assert burst.summary([GOOD, slow]) == {"scale_out_s": 12.0, "lag_peak_s": 8.0, "over_provision": 0.3}
    assert burst.summary([GOOD, slow._replace(scale_out_s=None)])["scale_out_s"] is None
