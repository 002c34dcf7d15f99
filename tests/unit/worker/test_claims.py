import asyncio
from collections.abc import Callable, Sequence

import pytest

from schemas.redis_keys import EndedRun
from services.worker import claims as module
from services.worker.adapters.memory_claims import InMemoryClaimStore, Shelf
from services.worker.claims import Claims
from services.worker.domain.ports import LEASE_S, Answer, Claim, Done, Verdict

CLAIM = Claim("r1", "answer", 1, deadline_at=9_000)
RUN = Answer(Verdict.RUN)


class World:
    """A shelf on a clock that the test holds, and one worker's claims on it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.shelf = Shelf(lambda: self.now)
        self.claims = Claims(InMemoryClaimStore(self.shelf, "a"), lambda: self.now)
        self.over: list[EndedRun] = []

    async def until(self, true: Callable[[], bool], step_s: float = 0.0) -> None:
        """Lets the keeper work until something holds."""
        keeper = asyncio.create_task(self.claims.keep(self.over.append))
        try:
            async with asyncio.timeout(5):
                while not true():
                    await asyncio.sleep(0.001)
                    self.now += step_s
        finally:
            keeper.cancel()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.001)
    monkeypatch.setattr(module, "CALL_TIMEOUT_S", 0.05)


async def test_a_held_claim_is_renewed() -> None:
    world = World()
    await world.claims.claim([CLAIM])
    await world.until(lambda: world.now > 2 * LEASE_S, step_s=0.2)
    assert world.shelf.get(CLAIM) is not None


async def test_a_dropped_claim_is_not() -> None:
    world = World()
    await world.claims.claim([CLAIM])
    world.claims.drop(CLAIM)
    await world.until(lambda: world.now > LEASE_S, step_s=0.2)
    assert world.shelf.get(CLAIM) is None


async def test_a_finished_claim_is_marked_done_and_left_alone() -> None:
    world = World()
    await world.claims.claim([CLAIM])
    await world.claims.finish([Done(CLAIM, 100.0)])
    await world.until(lambda: world.now > LEASE_S, step_s=0.2)
    assert (await world.claims.claim([CLAIM]))[0].verdict is Verdict.DONE


async def test_what_another_holds_is_not_renewed() -> None:
    world = World()
    world.shelf.put(CLAIM, "b", LEASE_S)
    assert (await world.claims.claim([CLAIM]))[0].verdict is Verdict.HELD
    await world.until(lambda: world.now > LEASE_S, step_s=0.2)
    assert world.shelf.get(CLAIM) is None


async def test_the_keeper_tells_of_runs_that_are_over() -> None:
    world = World()
    await world.claims.claim([CLAIM])
    world.shelf.dead["r1"] = CLAIM.deadline_at
    await world.until(lambda: bool(world.over), step_s=0.2)
    assert set(world.over) == {EndedRun("r1", CLAIM.deadline_at)}


async def test_released_claims_are_free() -> None:
    world = World()
    await world.claims.claim([CLAIM])
    await world.claims.release()
    assert world.shelf.get(CLAIM) is None


async def test_while_the_store_is_away_everything_may_run() -> None:
    world = World()
    world.shelf.away = True
    assert await world.claims.claim([CLAIM]) == [RUN]
    await world.claims.finish([Done(CLAIM, 10.0)])
    await world.claims.release()
    assert world.claims.away


async def test_a_store_that_is_away_is_asked_once() -> None:
    class Hung(InMemoryClaimStore):
        calls = 0

        async def claim(self, claims: Sequence[Claim]) -> Sequence[Answer]:
            Hung.calls += 1
            await asyncio.sleep(60)
            return []

    claims = Claims(Hung(Shelf(lambda: 0.0), "a"))
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(20):
        assert await claims.claim([CLAIM]) == [RUN]
    assert loop.time() - began < 0.5
    assert Hung.calls == 1


async def test_the_keeper_notices_that_the_store_is_back_and_claims_what_runs() -> None:
    world = World()
    world.shelf.away = True
    await world.claims.claim([CLAIM])
    world.shelf.away = False
    await world.until(lambda: not world.claims.away)
    assert world.shelf.get(CLAIM) is not None


async def test_a_suspect_that_is_anothers_by_now_is_not_isolated() -> None:
    world = World()
    await world.claims.claim([CLAIM])
    assert await world.claims.isolate(CLAIM)
    world.shelf.put(CLAIM, "b", LEASE_S)
    assert not await world.claims.isolate(CLAIM)


async def test_while_the_store_is_away_a_suspect_runs_alone_off_the_record() -> None:
    world = World()
    await world.claims.claim([CLAIM])
    world.shelf.away = True
    assert await world.claims.isolate(CLAIM)
    assert world.claims.away


async def test_suspects_and_poison_are_held_as_everything_else() -> None:
    world = World()
    poison = CLAIM._replace(run_id="r2")
    world.shelf.put(CLAIM, "b", 0.0, deaths=1)
    world.shelf.put(poison, "b", 0.0, alone=True)
    answers = await world.claims.claim([CLAIM, poison])
    assert [answer.verdict for answer in answers] == [Verdict.ALONE, Verdict.POISON]
    await world.until(lambda: world.now > 2 * LEASE_S, step_s=0.2)
    assert world.shelf.get(CLAIM) is not None
    assert world.shelf.get(poison) is not None
