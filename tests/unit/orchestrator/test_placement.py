"""Where tasks go within their lane."""

from collections import Counter

from services.orchestrator.domain.outstanding import Outstanding
from services.orchestrator.domain.placement import place, rendezvous

LANE = (4, 5, 6, 7)


def test_without_statuses_tasks_go_round_robin() -> None:
    placed = [place(LANE, None, lambda _: None, turn) for turn in range(8)]
    assert placed == [4, 5, 6, 7, 4, 5, 6, 7]


def test_one_unknown_partition_makes_all_a_guess() -> None:
    assert place(LANE, None, {4: 0, 5: 9, 6: 9}.get, 1) == 5


def test_a_task_without_a_session_joins_the_shortest_queue() -> None:
    assert place(LANE, None, {4: 3, 5: 1, 6: 2, 7: 3}.__getitem__, 0) == 5


def test_equally_short_queues_take_turns() -> None:
    queues = {4: 0, 5: 2, 6: 0, 7: 2}
    assert [place(LANE, None, queues.__getitem__, turn) for turn in range(4)] == [4, 6, 4, 6]


def test_a_session_keeps_its_partition_while_that_is_not_crowded() -> None:
    home = rendezvous("s-1", LANE)
    queues = dict.fromkeys(LANE, 4) | {home: 8}
    assert place(LANE, "s-1", queues.__getitem__, 0) == home
    assert place(LANE, "s-1", lambda _: None, 3) == home


def test_a_session_leaves_a_crowded_partition_for_the_shortest_queue() -> None:
    home = rendezvous("s-1", LANE)
    queues = dict.fromkeys(LANE, 1) | {home: 50}
    assert place(LANE, "s-1", queues.__getitem__, 0) != home


def test_an_idle_lane_is_not_crowded_by_one_task() -> None:
    home = rendezvous("s-1", LANE)
    assert place(LANE, "s-1", (dict.fromkeys(LANE, 0) | {home: 1}).__getitem__, 0) == home


def test_sessions_spread_and_mostly_stay_when_a_lane_grows() -> None:
    sessions = [f"s-{number}" for number in range(1_000)]
    before = {session: rendezvous(session, LANE) for session in sessions}
    after = {session: rendezvous(session, (*LANE, 10)) for session in sessions}
    assert min(Counter(before.values()).values()) > 150
    moved = [session for session in sessions if after[session] != before[session]]
    assert {after[session] for session in moved} == {10}


def test_outstanding_is_what_was_appended_less_what_was_committed() -> None:
    tasks = Outstanding()
    tasks.reported({3: 10})
    assert tasks.of(3) == 0
    tasks.sent(3)
    assert tasks.of(3) == 1
    tasks.acknowledged(3, offset=14)
    assert tasks.of(3) == 5
    tasks.reported({3: 15})
    assert tasks.of(3) == 0


def test_a_partition_nobody_reports_is_unknown() -> None:
    tasks = Outstanding()
    tasks.sent(3)
    assert tasks.of(3) is None
