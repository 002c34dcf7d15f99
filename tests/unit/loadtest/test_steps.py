"""Steps as the log tells of them: how many were behind, until when, and how long each took."""

from loadtest.steps import Step, by_class, latencies, mean_service_s, tasks_behind

STEPS = [
    Step("slow", 1_000, 3_000, 2_000.0),
    Step("slow", 1_000, 5_000, 2_000.0),
    Step("slow", 2_000, 7_000, 2_000.0),
]
"""One slot, three tasks of 2 s, one after another."""


def test_a_task_is_behind_from_its_record_to_the_end_of_its_step() -> None:
    assert list(tasks_behind(STEPS)) == [(1_000, 2), (2_000, 3), (3_000, 2), (5_000, 1), (7_000, 0)]


def test_steps_are_told_apart_by_class() -> None:
    quick = Step("quick", 1_500, 1_510, 5.0)
    assert by_class([STEPS[0], quick, STEPS[1]]) == {"quick": [quick], "slow": [STEPS[0], STEPS[1]]}


def test_a_step_takes_from_its_task_to_its_end() -> None:
    found = latencies(STEPS)
    assert len(found) == 3
    assert found.max_s == 5.0
    assert mean_service_s(STEPS) == 2.0
    assert mean_service_s([]) == 0.0
