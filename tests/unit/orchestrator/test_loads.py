"""How long a task would wait on a backend, from what its workers said last and what has been sent and done since."""

import pytest

from schemas.base import Priority
from schemas.fleet import WorkerStatus
from services.orchestrator.domain.loads import Load, ahead

INTERACTIVE, STANDARD, BATCH = Priority
NOON = 1_700_000_000_000
IDLE = dict.fromkeys(Priority, 0.0)


def worker(name: str = "a", state: str = "warm", at: int = NOON, **more: object) -> tuple[int, WorkerStatus]:
    told = {
        "instance": name, "host": "h", "model_class": "llm", "backend": "local", "state": state, "busy": 0,
        "slots": 4, "service_ms": 2_000 if state == "warm" else None, **more,
    }  # fmt: skip
    return at, WorkerStatus.model_validate(told)


def queued(tasks: float, lane: Priority = INTERACTIVE) -> dict[Priority, float]:
    return {**IDLE, lane: tasks}


# ---- what goes first ----


@pytest.mark.parametrize(
    ("lane", "outstanding", "tasks"),
    [
        (STANDARD, (0, 7, 0), 7.0),
        (INTERACTIVE, (0, 0, 1_000), 1 / 12),
        (INTERACTIVE, (11, 1_000, 1_000), 11 + 4 + 1),
        (BATCH, (1_000, 1_000, 0), 12 + 4),
        (BATCH, (5, 0, 9), 9 + 5),
    ],
    ids=[
        "its own lane",
        "no lower one holds it up",
        "lanes share by weight",
        "the lowest has a share",
        "what there is",
    ],
)
def test_other_lanes_are_ahead_by_their_weights(
    lane: Priority, outstanding: tuple[int, int, int], tasks: float
) -> None:
    assert ahead(lane, dict(zip(Priority, outstanding, strict=True))) == pytest.approx(tasks)


# ---- who works ----


def test_a_backend_nobody_was_heard_of_has_no_wait() -> None:
    load = Load()
    assert load.wait_s(INTERACTIVE) is None
    load.look([], queued(5), NOON)
    assert load.wait_s(INTERACTIVE) is None


@pytest.mark.parametrize("state", ["failed", "draining", "asleep", "starting"])
def test_workers_that_take_nothing_are_none(state: str) -> None:
    load = Load()
    load.look([worker(state=state)], IDLE, NOON)
    assert load.wait_s(INTERACTIVE) is None


def test_a_free_slot_is_no_wait_and_a_queue_is_one() -> None:
    load = Load()
    load.look([worker("a"), worker("b")], queued(7), NOON)
    assert load.wait_s(INTERACTIVE) == 0.0
    load.look([worker("a"), worker("b")], queued(19), NOON)
    assert load.wait_s(INTERACTIVE) == 3.0  # 12 tasks of 2 s on 8 slots


def test_a_quarter_of_the_slots_is_for_the_interactive_lane_only() -> None:
    load = Load()
    load.look([worker(slots=8)], queued(6, STANDARD), NOON)
    assert load.wait_s(STANDARD) == pytest.approx(2 / 6)
    assert load.wait_s(INTERACTIVE) == 0.0
    load.look([worker(slots=8)], queued(8), NOON)
    assert load.wait_s(INTERACTIVE) == pytest.approx(2 / 8)


def test_every_task_that_is_given_counts_at_once() -> None:
    load = Load()
    load.look([worker()], queued(4), NOON)
    waits = []
    for _ in range(3):
        waits.append(load.wait_s(INTERACTIVE))
        load.given(INTERACTIVE)
    assert waits == [0.5, 1.0, 1.5]


def test_a_backend_that_never_did_a_task_counts_as_quick_and_one_that_did_is_remembered() -> None:
    load = Load()
    load.look([worker(service_ms=None)], queued(100), NOON)
    assert (load.wait_s(INTERACTIVE), load.service_s) == (0.0, 0.0)
    load.look([worker(), worker("b", service_ms=4_000)], queued(100), NOON)
    load.look([worker("c", service_ms=None)], queued(100), NOON)
    assert load.service_s == 3.0


def test_a_worker_that_starts_is_ready_as_long_after_its_first_word_as_the_last_was() -> None:
    load = Load()
    load.look([worker("a", "starting", NOON)], IDLE, NOON)
    load.look([worker("a", "warm", NOON + 21_000, ready_at=NOON + 20_000)], IDLE, NOON + 21_000)
    load.look([worker("b", "starting", NOON + 50_000)], IDLE, NOON + 55_000)
    assert load.wait_s(INTERACTIVE) == 15.0
    load.look([worker("b", "starting", NOON + 69_000)], IDLE, NOON + 69_000)
    assert load.wait_s(INTERACTIVE) == 1.0
    load.look([worker("b", "starting", NOON + 71_000)], IDLE, NOON + 71_000)
    assert load.wait_s(INTERACTIVE) is None, "it may never get ready"


def test_what_starts_is_not_counted_beside_what_is_ready() -> None:
    load = Load()
    load.look([worker("a"), worker("b", "starting")], queued(7), NOON)
    assert load.wait_s(INTERACTIVE) == 2.0  # 4 tasks of 2 s on 4 slots


# ---- what was done since they spoke ----


def wait_after(seconds: float, spoke_s: float = 0.0, outstanding: float = 19) -> float | None:
    """Looked at four times a second; from 19 tasks on 4 slots of 2 s, of which one task is done every half second."""
    load, said = Load(), worker(at=NOON + round(spoke_s * 1_000))
    for look in range(round(seconds * 4) + 1):
        load.look([said], queued(outstanding), NOON + 250 * look)
    return load.wait_s(INTERACTIVE)


def test_work_goes_on_between_two_words_of_a_worker() -> None:
    assert (wait_after(0), wait_after(1), wait_after(2)) == (8.0, 7.0, 6.0)


def test_a_worker_that_is_silent_for_long_is_not_thought_to_work() -> None:
    assert wait_after(3) == wait_after(10) == 5.0


def test_a_new_word_is_the_truth_again() -> None:
    load = Load()
    load.look([worker()], queued(19), NOON)
    load.look([worker()], queued(19), NOON + 2_000)
    load.look([worker(at=NOON + 2_000)], queued(19), NOON + 2_000)
    assert load.wait_s(INTERACTIVE) == 8.0, "nothing was done after all"


def test_idle_time_is_no_credit_for_a_flood_that_comes_later() -> None:
    load, said = Load(), worker()
    for look in range(8):
        load.look([said], IDLE, NOON + 250 * look)
    load.look([said], queued(103), NOON + 2_000)
    assert load.wait_s(INTERACTIVE) == pytest.approx(50.0 - 0.25)


def test_a_steady_load_that_keeps_up_never_waits() -> None:
    """Half of the slots are busy. All that was sent since the worker spoke is outstanding, as far as is told."""
    load, waits = Load(), []
    for look in range(40):
        now, spoke = NOON + 250 * look, NOON + 250 * look // 2_000 * 2_000
        load.look([worker(at=spoke, service_ms=20)], queued(2 + (now - spoke) // 10), now)
        waits.append(load.wait_s(INTERACTIVE))
    assert max(wait for wait in waits if wait is not None) == 0.0


def test_a_worker_that_slept_is_ready_as_long_after_its_first_word_as_the_last_that_slept() -> None:
    load = Load()
    load.look([worker("a", "starting", NOON)], IDLE, NOON)
    load.look([worker("a", at=NOON + 20_000, ready_at=NOON + 20_000)], IDLE, NOON + 20_000)
    load.look([worker("a", "asleep", NOON + 60_000)], IDLE, NOON + 60_000)
    load.look([worker("a", "starting", NOON + 70_000)], IDLE, NOON + 70_000)
    assert load.wait_s(INTERACTIVE) == 20.0, "no wake-up was seen yet"
    load.look([worker("a", at=NOON + 73_000, ready_at=NOON + 72_000)], IDLE, NOON + 73_000)
    load.look([worker("b", "starting", NOON + 80_000)], IDLE, NOON + 80_000)
    assert load.wait_s(INTERACTIVE) == 20.0, "this one did not sleep"
    load.look([worker("a", "asleep", NOON + 90_000)], IDLE, NOON + 90_000)
    load.look([worker("a", "starting", NOON + 95_000)], IDLE, NOON + 95_000)
    assert load.wait_s(INTERACTIVE) == 2.0
