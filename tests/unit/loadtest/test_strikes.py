"""Until when a plane had not recovered, from hand-made logs."""

from loadtest.fleet import Said
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


def test_partitions_are_served_when_those_that_spoke_later_have_all_of_them() -> None:
    said = [
        worker(9_000, "killed", 1_000, owns=(0, 1)),
        worker(9_000, "b", 1_000, owns=(2,)),
        worker(11_000, "b", 1_000, owns=(2,)),
        worker(20_000, "b", 1_000, owns=(0, 1)),
        worker(21_000, "c", 13_000, owns=(2,)),
    ]
    assert again_s(STRUCK, said, {"llm": 3})["served"] == 11.0
    assert again_s(STRUCK, said[:-1], {"llm": 3})["served"] is None
    assert again_s(STRUCK, said, {"llm": 3, "code": 1})["served"] is None


def test_a_leader_is_replaced_when_a_later_one_places() -> None:
    struck = Struck(LEADER, 10_000, 1)
    assert again_s(struck, [placed(9_000, 4), placed(10_050, 4), placed(17_000, 30)], {}) == {"led": 7.0}
    assert again_s(struck, [placed(9_000, 4), placed(10_050, 4)], {}) == {"led": None}
