"""Several repeats as one: medians, spread, and ratios taken inside each."""

from typing import Any

from loadtest.repeats import combined


def repeat(p50: float, throughput: float, ratio: float | None, **more: Any) -> dict[str, Any]:
    latency = {"p50": p50, "p99": 2 * p50}
    series = {"seconds": [p50]}
    return {"throughput_per_s": throughput, "latency_ms": latency, "hop_ratio": ratio, "series": series, **more}


THREE = [repeat(70.0, 900.0, 1.5), repeat(60.0, 1_000.0, 1.1), repeat(80.0, 950.0, 1.2)]


def test_figures_are_medians() -> None:
    figures = combined(THREE)
    assert figures["throughput_per_s"] == 950.0
    assert figures["latency_ms"] == {"p50": 70.0, "p99": 140.0}


def test_the_median_of_counts_is_a_count() -> None:
    assert str(combined([repeat(1.0, 1.0, 1.0, completed=count) for count in (9, 11, 10)])["completed"]) == "10"
    assert combined([repeat(1.0, 1.0, 1.0, completed=count) for count in (9, 10)])["completed"] == 9.5


def test_a_ratio_is_the_median_of_ratios_not_the_ratio_of_medians() -> None:
    assert combined(THREE)["hop_ratio"] == 1.2


def test_extremes_are_kept_of_what_differs() -> None:
    figures = combined([{**each, "ideal_ms": 55.0} for each in THREE])
    assert figures["spread"] == {
        "throughput_per_s": [900.0, 1_000.0],
        "latency_ms": {"p50": [60.0, 80.0], "p99": [120.0, 160.0]},
        "hop_ratio": [1.1, 1.5],
    }


def test_every_repeat_is_kept_and_the_series_of_the_typical_one() -> None:
    figures = combined(THREE)
    assert [each["throughput_per_s"] for each in figures["repeats"]] == [900.0, 1_000.0, 950.0]
    assert all("series" not in each for each in figures["repeats"])
    assert figures["series"] == {"seconds": [70.0]}


def test_a_promise_broken_once_is_broken() -> None:
    kept, broken = repeat(1.0, 1.0, 1.0, broken=[]), repeat(1.0, 1.0, 1.0, broken=["separate"])
    assert combined([kept, broken, kept])["broken"] == ["separate"]
    assert combined([kept, kept])["broken"] == []
    assert "broken" not in combined(THREE)


def test_a_figure_that_one_repeat_lacks_is_the_median_of_the_others() -> None:
    assert combined([repeat(1.0, 1.0, None), repeat(2.0, 1.0, 1.4), repeat(3.0, 1.0, 1.2)])["hop_ratio"] == 1.3


def test_a_part_that_only_some_repeats_had_is_not_lost() -> None:
    parts: list[dict[str, float]] = [{"kafka": 1.0}, {"kafka": 2.0, "worker quick": 5.0}, {"kafka": 3.0}]
    figures = combined([repeat(1.0 + n, 1.0, 1.0, cpu_ms_per_run=part) for n, part in enumerate(parts)])
    assert figures["cpu_ms_per_run"] == {"kafka": 2.0, "worker quick": 5.0}


def test_one_repeat_stays_as_it_is() -> None:
    assert combined(THREE[:1]) == THREE[0]
