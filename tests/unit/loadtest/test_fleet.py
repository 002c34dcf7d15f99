"""What is read from what the fleet says: decisions by leader, workers by the time that they were warm."""

from collections.abc import Mapping
from typing import Literal

import pytest

from loadtest.fleet import Fleet, Level, Said, Span, decided, highest, is_at_zero, level, placed_ms, warm, warm_at
from schemas.fleet import HostStatus, Kept, Placement, ScalingDecision, WorkerStatus


def decision(at_ms: int, replicas: int, epoch: int = 1, queue: str = "llm") -> Said:
    status = ScalingDecision(instance=f"a-{epoch}", epoch=epoch, queue=queue, replicas=replicas, because="the load")
    return Said(at_ms, status)


def worker(
    at_ms: int,
    instance: str,
    ready_at: int | None,
    state: Literal["starting", "warm", "draining"] = "warm",
    owns: tuple[int, ...] = (),
) -> Said:
    status = WorkerStatus(
        instance=instance,
        host="h",
        model_class="llm",
        backend="local",
        state=state,
        slots=4,
        busy=0,
        ready_at=ready_at,
        committed=dict.fromkeys(owns, 0),
    )
    return Said(at_ms, status)


def placement(at_ms: int, **queues: int) -> Said:
    kept = {name: Kept(warm=number) for name, number in queues.items()}
    return Said(at_ms, Placement(instance="a", host="h", epoch=1, queues=kept))


def host(at_ms: int, workers: Mapping[str, int], instance: str = "h") -> Said:
    return Said(at_ms, HostStatus(instance=instance, workers=dict(workers)))


def test_repeated_decisions_are_one_level() -> None:
    said = [decision(10, 1), decision(20, 1), decision(30, 4), decision(35, 2, queue="code"), decision(40, 1)]
    assert decided(said) == {"llm": [Level(10, 1), Level(30, 4), Level(40, 1)], "code": [Level(35, 2)]}


def test_a_leader_that_was_replaced_decides_nothing() -> None:
    assert decided([decision(10, 1), decision(20, 3, epoch=7), decision(30, 1)]) == {
        "llm": [Level(10, 1), Level(20, 3)]
    }


def test_a_level_holds_until_the_next() -> None:
    levels = [Level(10, 1), Level(30, 4), Level(40, 2)]
    assert [level(levels, at_ms) for at_ms in (9, 10, 29, 30, 99)] == [0, 1, 1, 4, 2]
    assert (highest(levels, 10, 30), highest(levels, 10, 31), highest(levels, 50, 60)) == (1, 4, 2)
    assert highest([], 0, 9) == 0


def test_a_worker_is_warm_from_its_engines_start_until_it_last_said_so() -> None:
    said = [
        worker(10, "a", None, "starting"),
        worker(20, "a", 15),
        worker(25, "b", 24),
        worker(40, "a", 15),
        worker(50, "a", 15, "draining"),
    ]
    assert warm(said) == {"llm": [Span(15, 40), Span(24, 25)]}
    assert [warm_at(warm(said)["llm"], at_ms) for at_ms in (14, 15, 24, 26, 41)] == [0, 1, 2, 1, 0]


def test_a_start_begins_when_a_host_is_told_to_keep_a_worker() -> None:
    said = [placement(10, llm=1), placement(20, llm=0, code=1), placement(30, llm=1)]
    assert placed_ms(said, "llm", 10) == 10
    assert placed_ms(said, "llm", 11) == 30
    assert placed_ms(said, "llm", 31) is None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([], False),
        ([host(5, {})], False),  # said before the last answer
        ([host(11, {"llm": 1})], False),
        ([host(11, {"llm": 1}), host(14, {"llm": 0})], True),
        ([host(11, {"llm": 0}), host(12, {"llm": 1}, "other")], False),
    ],
)
def test_a_plane_is_at_zero_when_every_host_that_speaks_says_so(said: list[Said], expected: bool) -> None:
    assert is_at_zero(said, 10) is expected


async def test_whoever_waits_hears_what_is_said_meanwhile() -> None:
    fleet = Fleet()
    assert not await fleet.until(bool, timeout_s=0)
    fleet.hear(10, host(10, {}).status)
    assert await fleet.until(bool, timeout_s=0)
