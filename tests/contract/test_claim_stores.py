"""What every claim store does, the one in Redis and its twin alike."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis

from schemas.redis_keys import claim_key, dead_run_key
from services.worker.adapters.memory_claims import InMemoryClaimStore, Shelf
from services.worker.adapters.redis_claims import RedisClaimStore
from services.worker.domain.ports import (
    LEASE_S,
    MEMORY_S,
    Answer,
    Claim,
    ClaimStore,
    ClaimsUnavailable,
    Done,
    Verdict,
)

DEADLINE_AT = 9_000
RUN, ALONE, POISON, DONE, DEAD = (
    Answer(verdict) for verdict in (Verdict.RUN, Verdict.ALONE, Verdict.POISON, Verdict.DONE, Verdict.DEAD)
)


@dataclass
class Subject:
    """A store as its owners see it, and the powers of the world outside."""

    owner: Callable[[str], ClaimStore]
    end_lease: Callable[[Claim], Awaitable[None]]
    end_run: Callable[[str], Awaitable[None]]
    lose: Callable[[Claim], Awaitable[None]]
    lease_s: Callable[[Claim], Awaitable[float]]
    keeps_s: Callable[[Claim], Awaitable[float]]


@pytest.fixture
def in_memory() -> Subject:
    now = 0.0
    shelf = Shelf(lambda: now)

    async def end_lease(claim: Claim) -> None:
        nonlocal now
        now += LEASE_S

    async def end_run(run_id: str) -> None:
        shelf.dead[run_id] = DEADLINE_AT

    async def lose(claim: Claim) -> None:
        shelf.flush()

    async def keeps_s(claim: Claim) -> float:
        entry = shelf.get(claim)
        return entry.ends_at - now if entry else 0.0

    return Subject(lambda name: InMemoryClaimStore(shelf, name), end_lease, end_run, lose, keeps_s, keeps_s)


def key_of(claim: Claim) -> str:
    return claim_key(claim.run_id, claim.step, claim.deadline_at)


@pytest.fixture
async def in_redis(redis_url: str) -> AsyncIterator[Subject]:
    redis = Redis.from_url(redis_url, decode_responses=True)

    async def end_lease(claim: Claim) -> None:
        await redis.pexpire(key_of(claim), int(MEMORY_S * 1_000))

    async def end_run(run_id: str) -> None:
        await redis.set(dead_run_key(run_id), DEADLINE_AT)

    async def lose(claim: Claim) -> None:
        await redis.delete(key_of(claim))

    async def keeps_s(claim: Claim) -> float:
        return float(await redis.pttl(key_of(claim))) / 1_000

    async def lease_s(claim: Claim) -> float:
        return await keeps_s(claim) - MEMORY_S

    yield Subject(lambda name: RedisClaimStore(redis, name), end_lease, end_run, lose, lease_s, keeps_s)
    await redis.aclose()


@pytest.fixture(params=["in_memory", pytest.param("in_redis", marks=pytest.mark.kafka)])
def subject(request: pytest.FixtureRequest) -> Subject:
    found: Subject = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def claim() -> Claim:
    return Claim(str(uuid.uuid4()), "answer", 2, DEADLINE_AT)


def another() -> Claim:
    return Claim(str(uuid.uuid4()), "answer", 1, DEADLINE_AT)


def attempt(claim: Claim, number: int) -> Claim:
    return claim._replace(attempt=number)


async def test_a_free_step_is_ours_for_a_lease(subject: Subject, claim: Claim) -> None:
    assert await subject.owner("a").claim([claim]) == [RUN]
    assert LEASE_S - 1 < await subject.lease_s(claim) <= LEASE_S


async def test_what_is_ours_can_be_claimed_again(subject: Subject, claim: Claim) -> None:
    ours = subject.owner("a")
    await ours.claim([claim])
    assert await ours.claim([claim]) == [RUN]


async def test_another_owner_learns_how_long_to_wait(subject: Subject, claim: Claim) -> None:
    await subject.owner("a").claim([claim])
    [answer] = await subject.owner("b").claim([claim])
    assert answer.verdict is Verdict.HELD
    assert 0 < answer.wait_s <= LEASE_S


async def test_a_lease_that_ended_is_free(subject: Subject, claim: Claim) -> None:
    await subject.owner("a").claim([claim])
    await subject.end_lease(claim)
    assert await subject.owner("b").claim([claim]) == [RUN]


async def test_a_newer_attempt_takes_over(subject: Subject, claim: Claim) -> None:
    await subject.owner("a").claim([claim])
    assert await subject.owner("b").claim([attempt(claim, 3)]) == [RUN]


async def test_an_older_attempt_is_superseded(subject: Subject, claim: Claim) -> None:
    await subject.owner("a").claim([claim])
    assert await subject.owner("b").claim([attempt(claim, 1)]) == [DONE]
    assert await subject.owner("a").claim([attempt(claim, 1)]) == [DONE]


async def test_a_done_attempt_is_skipped_and_a_newer_one_is_not(subject: Subject, claim: Claim) -> None:
    await subject.owner("a").claim([claim])
    await subject.owner("a").finish([Done(claim, 60.0)])
    assert await subject.owner("b").claim([claim]) == [DONE]
    assert await subject.owner("a").claim([claim]) == [DONE]
    assert await subject.owner("b").claim([attempt(claim, 3)]) == [RUN]


async def test_done_is_remembered_for_as_long_as_asked(subject: Subject, claim: Claim) -> None:
    await subject.owner("a").finish([Done(claim, 60.0)])
    assert 59 < await subject.keeps_s(claim) <= 60


async def test_the_end_of_an_old_attempt_leaves_the_newer_one_alone(subject: Subject, claim: Claim) -> None:
    old, new = subject.owner("a"), subject.owner("b")
    await old.claim([claim])
    await new.claim([attempt(claim, 3)])
    await old.finish([Done(claim, 60.0)])
    await old.release([claim])
    [answer] = await subject.owner("c").claim([attempt(claim, 3)])
    assert answer.verdict is Verdict.HELD


async def test_a_run_that_is_over_cannot_be_claimed(subject: Subject, claim: Claim) -> None:
    await subject.end_run(claim.run_id)
    assert await subject.owner("a").claim([claim]) == [DEAD]


async def test_renewal_says_which_runs_are_over(subject: Subject, claim: Claim) -> None:
    ours, other = subject.owner("a"), another()
    await ours.claim([claim, other])
    await subject.end_run(claim.run_id)
    assert await ours.renew([claim, other]) == [True, False]


async def test_a_run_id_that_lives_again_is_not_over(subject: Subject, claim: Claim) -> None:
    await subject.end_run(claim.run_id)
    reborn = claim._replace(deadline_at=99_000)
    assert await subject.owner("a").claim([reborn, claim]) == [RUN, DEAD]
    assert await subject.owner("a").renew([reborn]) == [False]


async def test_each_life_of_a_run_id_has_claims_of_its_own(subject: Subject, claim: Claim) -> None:
    ours, reborn = subject.owner("a"), claim._replace(deadline_at=99_000, attempt=1)
    await ours.claim([claim])
    await ours.finish([Done(claim, 60.0)])
    assert await subject.owner("b").claim([reborn, claim]) == [RUN, DONE]


async def test_renewal_makes_a_claim_again_that_was_lost_with_the_store(subject: Subject, claim: Claim) -> None:
    ours = subject.owner("a")
    await ours.claim([claim])
    await subject.lose(claim)
    await ours.renew([claim])
    [answer] = await subject.owner("b").claim([claim])
    assert answer.verdict is Verdict.HELD


async def test_renewal_never_takes_from_another(subject: Subject, claim: Claim) -> None:
    ours, theirs = subject.owner("a"), subject.owner("b")
    await ours.claim([claim])
    await subject.end_lease(claim)
    await theirs.claim([claim])
    await ours.renew([claim])
    [answer] = await ours.claim([claim])
    assert answer.verdict is Verdict.HELD


async def test_renewal_does_not_forget_that_it_is_done(subject: Subject, claim: Claim) -> None:
    ours = subject.owner("a")
    await ours.claim([claim])
    await ours.finish([Done(claim, 60.0)])
    await ours.renew([claim])
    assert await ours.claim([claim]) == [DONE]


async def test_what_is_released_is_free_at_once(subject: Subject, claim: Claim) -> None:
    await subject.owner("a").claim([claim])
    await subject.owner("a").release([claim])
    assert await subject.owner("b").claim([claim]) == [RUN]


async def test_nobody_releases_what_another_holds(subject: Subject, claim: Claim) -> None:
    await subject.owner("a").claim([claim])
    await subject.owner("b").release([claim])
    [answer] = await subject.owner("b").claim([claim])
    assert answer.verdict is Verdict.HELD


async def die(subject: Subject, claim: Claim, *owners: str) -> None:
    """Each of them claims it, and is never heard of again."""
    for owner in owners:
        assert (await subject.owner(owner).claim([claim]))[0].verdict in (Verdict.RUN, Verdict.ALONE)
        await subject.end_lease(claim)


async def test_a_task_that_lost_two_holders_may_only_run_alone(subject: Subject, claim: Claim) -> None:
    await die(subject, claim, "a")
    assert await subject.owner("b").claim([claim]) == [RUN]
    await subject.end_lease(claim)
    assert await subject.owner("c").claim([claim]) == [ALONE]
    assert await subject.owner("c").claim([claim]) == [ALONE]
    assert (await subject.owner("d").claim([claim]))[0].verdict is Verdict.HELD


async def test_a_task_that_was_not_alone_when_its_holder_died_is_not_poison(subject: Subject, claim: Claim) -> None:
    await die(subject, claim, "a", "b", "c", "d")
    assert await subject.owner("e").claim([claim]) == [ALONE]


async def test_a_task_whose_holder_died_while_it_ran_alone_is_poison(subject: Subject, claim: Claim) -> None:
    await die(subject, claim, "a", "b")
    await subject.owner("c").claim([claim])
    assert await subject.owner("c").isolate(claim)
    assert await subject.owner("c").claim([claim]) == [ALONE]
    assert (await subject.owner("d").claim([claim]))[0].verdict is Verdict.HELD
    await subject.end_lease(claim)
    assert await subject.owner("d").claim([claim]) == [POISON]
    await subject.end_lease(claim)
    assert await subject.owner("e").claim([claim]) == [POISON]
    await subject.owner("e").finish([Done(claim, 60.0)])
    assert await subject.owner("f").claim([claim]) == [DONE]


async def test_renewal_keeps_count_of_deaths_and_of_being_alone(subject: Subject, claim: Claim) -> None:
    await die(subject, claim, "a", "b")
    ours = subject.owner("c")
    await ours.claim([claim])
    await ours.renew([claim])
    assert await ours.claim([claim]) == [ALONE]
    await ours.isolate(claim)
    await ours.renew([claim])
    assert LEASE_S - 1 < await subject.lease_s(claim) <= LEASE_S
    await subject.end_lease(claim)
    assert await subject.owner("d").claim([claim]) == [POISON]


async def test_what_was_released_counts_as_no_death(subject: Subject, claim: Claim) -> None:
    for owner in "abcd":
        assert await subject.owner(owner).claim([claim]) == [RUN]
        await subject.owner(owner).release([claim])


async def test_a_release_forgets_no_earlier_death(subject: Subject, claim: Claim) -> None:
    await die(subject, claim, "a", "b")
    for owner in "cd":
        assert await subject.owner(owner).claim([claim]) == [ALONE]
        await subject.owner(owner).isolate(claim)
        await subject.owner(owner).release([claim])
    assert await subject.owner("e").claim([claim]) == [ALONE]


async def test_a_holder_whose_lease_ended_and_who_lives_goes_on(subject: Subject, claim: Claim) -> None:
    ours = subject.owner("a")
    for _ in range(4):
        await ours.claim([claim])
        await subject.end_lease(claim)
    await ours.renew([claim])
    assert (await subject.owner("b").claim([claim]))[0].verdict is Verdict.HELD


async def test_the_deaths_of_an_attempt_are_not_those_of_the_next_one(subject: Subject, claim: Claim) -> None:
    await die(subject, claim, "a", "b", "c")
    assert await subject.owner("d").claim([attempt(claim, 3)]) == [RUN]


async def test_a_lost_store_has_lost_the_deaths_too(subject: Subject, claim: Claim) -> None:
    await die(subject, claim, "a", "b")
    await subject.lose(claim)
    assert await subject.owner("c").claim([claim]) == [RUN]


async def test_a_claim_lost_with_the_store_can_still_be_isolated(subject: Subject, claim: Claim) -> None:
    await subject.owner("a").claim([claim])
    await subject.lose(claim)
    assert await subject.owner("a").isolate(claim)
    await subject.end_lease(claim)
    assert await subject.owner("b").claim([claim]) == [POISON]


async def test_nobody_isolates_what_another_holds(subject: Subject, claim: Claim) -> None:
    await subject.owner("a").claim([claim])
    assert not await subject.owner("b").isolate(claim)
    await subject.owner("a").finish([Done(claim, 60.0)])
    assert not await subject.owner("a").isolate(claim)
    assert await subject.owner("b").claim([claim]) == [DONE]


async def test_many_are_answered_in_their_order(subject: Subject, claim: Claim) -> None:
    held, done, free = (another() for _ in range(3))
    await subject.owner("a").claim([held])
    await subject.owner("a").finish([Done(done, 60.0)])
    await subject.end_run(claim.run_id)
    answers = await subject.owner("b").claim([held, done, claim, free])
    assert [answer.verdict for answer in answers] == [Verdict.HELD, Verdict.DONE, Verdict.DEAD, Verdict.RUN]


async def test_nothing_may_be_asked(subject: Subject) -> None:
    ours = subject.owner("a")
    assert await ours.claim([]) == []
    assert await ours.renew([]) == []
    await ours.finish([])
    await ours.release([])


@pytest.mark.kafka
@pytest.mark.parametrize("value", ["2 somebody", "2 somebody x", "nonsense", ""])
async def test_a_claim_in_words_of_another_version_holds_up_nobody(redis_url: str, claim: Claim, value: str) -> None:
    redis = Redis.from_url(redis_url, decode_responses=True)
    await redis.set(key_of(claim), value, px=1_000)
    assert await RedisClaimStore(redis, "a").claim([claim]) == [RUN]
    await redis.aclose()


async def test_a_store_that_is_not_there_says_so(claim: Claim) -> None:
    redis = Redis.from_url("redis://127.0.0.1:1")
    away = Shelf(lambda: 0.0)
    away.away = True
    for store in (RedisClaimStore(redis, "a"), InMemoryClaimStore(away, "a")):
        for call in (
            store.claim([claim]),
            store.renew([claim]),
            store.isolate(claim),
            store.finish([Done(claim, 1.0)]),
            store.release([claim]),
        ):
            with pytest.raises(ClaimsUnavailable):
                await call
    await redis.aclose()
