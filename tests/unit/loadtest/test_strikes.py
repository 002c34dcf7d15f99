"""Until when a plane had not recovered, from hand-made logs."""

from loadtest.fleet import Said
from loadtest.steps import Step
from loadtest.strikes import HOST, LEADER, Struck, again_s
from schemas.fleet import Placement
from tests.unit.loadtest.test_fleet import decision, worker

STRUCK = Struck(HOST, 10_000, 1)
STANDING = [decision(1_000, 2), worker(2_000, "a", 1_500), worker(9_000, "b", 1_600), worker(99_000, "a", 1_500)]
"""Two workers are decided on; `b` says nothing after 9 s."""


def placed(at_ms: int, epoch: int) -> Said:
    return Said(at_ms, Placement(instance=f"a-{epoch}", host="h", epoch=epoch, queues={}))


def test_workers_are_back_when_as_many_are_warm_as_were_decided_on() -> None:
    later = worker(22_000, "c", 21_500)
    assert again_s(STRUCK, [*STANDING, later], {})["warm"] == 11.5
    assert again_s(STRUCK, STANDING, {})["warm"] is None


def test_what_is_decided_on_later_is_no_part_of_the_recovery() -> None:
    assert again_s(STRUCK, [*STANDING, decision(15_000, 9), worker(22_000, "c", 21_500)], {})["warm"] == 11.5


def test_tasks_that_were_out_have_begun_anew() -> None:
    said = [*STANDING, worker(22_000, "c", 10_500)]
    steps = {
        "llm": [
            Step("llm", 9_500, 10_400, 1_000.0),  # under way, where nothing was killed
            Step("llm", 9_000, 24_000, 1_000.0),
            Step("llm", 10_100, 40_000, 1_000.0),  # queued later
        ]
    }
    assert again_s(STRUCK, said, steps) == {"warm": 0.5, "begun": 13.0}


def test_a_leader_is_replaced_when_a_later_one_places() -> None:
    struck = Struck(LEADER, 10_000, 1)
    assert again_s(struck, [placed(9_000, 4), placed(10_050, 4), placed(17_000, 30)], {}) == {"led": 7.0}
    assert again_s(struck, [placed(9_000, 4), placed(10_050, 4)], {}) == {"led": None}
