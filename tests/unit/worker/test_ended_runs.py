from schemas.redis_keys import DEAD_RUN_TTL_S, EndedRun
from services.worker import ended_runs as module
from services.worker.ended_runs import EndedRuns


def test_the_life_that_ended_is_covered_and_no_other() -> None:
    ended = EndedRuns()
    ended.add(EndedRun("r1", 5_000))
    assert ended.covers("r1", 5_000)
    assert not ended.covers("r1", 9_000)
    assert not ended.covers("r2", 5_000)


def test_the_end_of_an_ids_next_life_counts_for_that_one() -> None:
    ended = EndedRuns()
    ended.add(EndedRun("r1", 5_000))
    ended.add(EndedRun("r1", 9_000))
    assert ended.covers("r1", 9_000)


def test_an_end_is_forgotten_when_none_of_its_tasks_can_run_any_more() -> None:
    now = 0.0
    ended = EndedRuns(lambda: now)
    ended.add(EndedRun("r1", 1))
    now = DEAD_RUN_TTL_S / 2
    ended.add(EndedRun("r2", 1))
    now = DEAD_RUN_TTL_S + 1
    ended.add(EndedRun("r3", 1))
    assert [ended.covers(run_id, 1) for run_id in ("r1", "r2", "r3")] == [False, True, True]


def test_what_was_heard_again_is_remembered_longer() -> None:
    now = 0.0
    ended = EndedRuns(lambda: now)
    ended.add(EndedRun("r1", 1))
    now = DEAD_RUN_TTL_S - 1
    ended.add(EndedRun("r1", 1))
    now = DEAD_RUN_TTL_S + 1
    ended.add(EndedRun("r2", 1))
    assert ended.covers("r1", 1)


def test_only_so_many_are_remembered() -> None:
    ended = EndedRuns()
    for number in range(module.REMEMBERED + 10):
        ended.add(EndedRun(f"r{number}", 1))
    assert len(ended) == module.REMEMBERED
    assert not ended.covers("r9", 1)
    assert ended.covers("r10", 1)


def test_listeners_hear_every_end() -> None:
    heard: list[EndedRun] = []
    ended = EndedRuns()
    ended.listen(heard.append)
    ended.add(EndedRun("r1", 1))
    assert heard == [EndedRun("r1", 1)]
