from hypothesis import given
from hypothesis import strategies as st

from services.worker.domain.batches import MicroBatcher


def filled(count: int, max_size: int = 4, max_wait_s: float = 0.002) -> MicroBatcher[int]:
    batcher = MicroBatcher[int](max_size, max_wait_s)
    for number in range(count):
        batcher.add(number, now_s=number / 10_000)
    return batcher


def test_an_idle_engine_waits_for_nobody() -> None:
    assert filled(1).next(0.0, idle=True) == [0]


def test_a_busy_engine_lets_the_first_wait_for_company() -> None:
    batcher = filled(2)
    assert batcher.next(0.001, idle=False) == []
    assert batcher.next(0.002, idle=False) == [0, 1]


def test_a_full_batch_goes_at_once() -> None:
    batcher = filled(5)
    assert batcher.next(0.0, idle=False) == [0, 1, 2, 3]
    assert batcher.next(0.0, idle=False) == []


def test_what_did_not_fit_has_waited_since_the_first() -> None:
    batcher = filled(5)
    batcher.next(0.0, idle=False)
    assert batcher.next(0.002, idle=False) == [4]


def test_it_says_when_the_first_must_go() -> None:
    batcher = filled(1)
    assert batcher.due_in(0.0005) == 0.0015
    assert batcher.due_in(1.0) == 0.0


def test_empty_it_has_nothing_due() -> None:
    batcher = filled(0)
    assert batcher.due_in(0.0) is None
    assert batcher.next(1.0, idle=True) == []


def test_given_up_tasks_are_returned_once() -> None:
    batcher = filled(3)
    assert batcher.clear() == [0, 1, 2]
    assert batcher.clear() == []


@given(st.lists(st.one_of(st.just("add"), st.booleans()), max_size=200), st.integers(1, 8))
def test_every_task_leaves_once_in_order_in_batches_of_the_size(steps: list[str | bool], max_size: int) -> None:
    batcher = MicroBatcher[int](max_size, 0.01)
    added, left = 0, list[int]()
    for moment, step in enumerate(steps):
        if isinstance(step, str):
            batcher.add(added, moment / 1_000)
            added += 1
            continue
        batch = batcher.next(moment / 1_000, idle=step)
        assert len(batch) <= max_size
        left += batch
    assert left + batcher.clear() == list(range(added))
