"""One consumer after another: which failures count, and which end it all."""

import asyncio
from typing import cast

import pytest

from services.chassis.kafka import supervision
from services.chassis.kafka.supervision import StalledError, supervise
from services.chassis.kafka.types import Consumer, KafkaError, ProducerDeadError


class Sessions:
    """Each fails with the next of these; then they are told to stop."""

    def __init__(self, *errors: Exception) -> None:
        self.stopping = asyncio.Event()
        self._errors = list(errors)

    async def __call__(self) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self.stopping.set()


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "RESTART_S", 0.0)


async def test_a_few_failures_in_a_row_are_survived() -> None:
    sessions = Sessions(*[StalledError("stuck")] * (supervision.MAX_FAILURES - 1))
    await supervise(sessions, sessions.stopping)
    assert sessions.stopping.is_set()


async def test_more_are_the_end() -> None:
    sessions = Sessions(*[StalledError("stuck")] * supervision.MAX_FAILURES)
    with pytest.raises(StalledError, match="stuck"):
        await supervise(sessions, sessions.stopping)


async def test_failures_long_after_each_other_are_not_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "STABLE_S", -1.0)
    sessions = Sessions(*[KafkaError("a hiccup")] * 50)
    await supervise(sessions, sessions.stopping)
    assert sessions.stopping.is_set()


@pytest.mark.parametrize("error", [ProducerDeadError("refused"), ZeroDivisionError("a bug")])
async def test_what_another_consumer_would_not_mend_is_the_end_at_once(error: Exception) -> None:
    sessions = Sessions(error)
    with pytest.raises(type(error)):
        await supervise(sessions, sessions.stopping)
    assert not sessions.stopping.is_set()


async def test_a_stop_does_not_wait_for_the_next_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "RESTART_S", 3_600.0)
    sessions = Sessions(KafkaError("a hiccup"))
    running = asyncio.create_task(supervise(sessions, sessions.stopping))
    await asyncio.sleep(0)
    sessions.stopping.set()
    await asyncio.wait_for(running, 10)


async def test_a_watch_over_a_consumer_that_has_not_joined_yet_asks_the_broker_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervision, "WATCH_S", 0.0)
    asked = asyncio.Event()

    class NotJoined:
        async def positions(self, _: object) -> dict[object, int]:
            asked.set()
            return {}

        async def end_offsets(self, _: object) -> dict[object, int]:
            raise AttributeError("'NoneType' object has no attribute 'end_offsets'")

    watching = asyncio.create_task(supervision.Watch(cast(Consumer, NotJoined()), frozenset).run())
    await asyncio.wait_for(asked.wait(), 10)
    await asyncio.sleep(0)
    assert not watching.done()
    watching.cancel()


class Alive:
    """Its records come."""

    async def positions(self, _: object) -> dict[object, int]:
        return {}


@pytest.fixture
async def watch(monkeypatch: pytest.MonkeyPatch) -> supervision.Watch:
    monkeypatch.setattr(supervision, "WATCH_S", 0.0)
    monkeypatch.setattr(supervision, "COMMIT_STALL_S", 0.0)
    return supervision.Watch(cast(Consumer, Alive()), frozenset)


async def test_a_consumer_whose_records_come_and_whose_commits_are_not_taken_is_stuck(
    watch: supervision.Watch,
) -> None:
    watch.committed(taken=False)
    watching = asyncio.create_task(watch.run())
    async with asyncio.timeout(10):
        while not watching.done():
            watch.delivered()
            await asyncio.sleep(0)
    with pytest.raises(StalledError, match="no commit was taken"):
        watching.result()


@pytest.mark.parametrize("delivers", [False, True])
async def test_it_is_not_while_nothing_comes_or_when_a_commit_is_taken_again(
    watch: supervision.Watch, *, delivers: bool
) -> None:
    watch.committed(taken=False)
    if delivers:
        watch.committed(taken=True)
    watching = asyncio.create_task(watch.run())
    for _ in range(50):
        if delivers:
            watch.delivered()
        await asyncio.sleep(0)
    assert not watching.done()
    watching.cancel()
