"""This worker's claims: made and marked in batches, bounded in time, renewed; done without while Redis is away."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from schemas.redis_keys import EndedRun
from services.chassis.logging import log
from services.worker.coalescer import Coalescer
from services.worker.domain.ports import Answer, Claim, ClaimStore, ClaimsUnavailable, Done, Verdict

CALL_TIMEOUT_S = 1.0
"""What a store that stopped answering may cost the tasks that find out; later ones do not ask. With less, a worker
that stands still for a moment, as when several start on few cores, takes its own delay for the store's."""
TICK_S = 0.25
RENEW_AFTER_S = 0.7
"""Often enough that a run that is over is noticed within a second even when its announcement was lost."""
PROBE_TIMEOUT_S = 1.0
MARK_LINGER_S = 0.02
"""Results are in the log by then, and only their commit waits: together they cost a busy worker few calls."""

T = TypeVar("T")
_GO_AHEAD = Answer(Verdict.RUN)


class Claims:
    """Never raises for the store's sake: a worker without claims repeats work at worst."""

    def __init__(self, store: ClaimStore, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._held: dict[Claim, float] = {}
        self._away = False
        self._make = Coalescer(self._claim_all)
        self._mark = Coalescer(self._finish_all, MARK_LINGER_S)

    @property
    def away(self) -> bool:
        """Whether the store is done without just now."""
        return self._away

    async def claim(self, claims: Sequence[Claim]) -> Sequence[Answer]:
        """One answer each; RUN when nobody can tell."""
        return await self._make(claims)

    async def finish(self, done: Sequence[Done]) -> None:
        """Marks them done, so that a repeat is skipped; they are held no longer."""
        for one in done:
            self._held.pop(one.claim, None)
        await self._mark(done)

    async def isolate(self, claim: Claim) -> bool:
        """Notes that it runs alone from now on; False when it is another's by now."""
        noted = None if self._away else await self._ask(self._store.isolate(claim), CALL_TIMEOUT_S)
        return noted is not False

    def drop(self, claim: Claim) -> None:
        """Stops renewing it; its lease ends by itself."""
        self._held.pop(claim, None)

    async def release(self) -> None:
        """Gives up all that is held, for a successor that should not wait."""
        held = list(self._held)
        self._held.clear()
        if held:
            await self._ask(self._store.release(held), CALL_TIMEOUT_S)

    async def keep(self, on_over: Callable[[EndedRun], None]) -> None:
        """A component: renews what is held, tells of runs that are over, and notices when the store is back."""
        while True:
            await asyncio.sleep(TICK_S)
            now = self._monotonic()
            due = [claim for claim, at in self._held.items() if self._away or now - at >= RENEW_AFTER_S]
            if due or self._away:
                await self._renew(due, on_over)

    async def _renew(self, claims: list[Claim], on_over: Callable[[EndedRun], None]) -> None:
        over = await self._ask(self._store.renew(claims), PROBE_TIMEOUT_S)
        if over is None:
            return
        if self._away:
            self._away = False
            log.info("claims_back", held=len(self._held))
        now = self._monotonic()
        for claim, is_over in zip(claims, over, strict=True):
            if claim in self._held:
                self._held[claim] = now
            if is_over:
                on_over(EndedRun(claim.run_id, claim.deadline_at))

    async def _claim_all(self, claims: Sequence[Claim]) -> Sequence[Answer]:
        answers = None if self._away else await self._ask(self._store.claim(claims), CALL_TIMEOUT_S)
        if answers is None:
            answers = [_GO_AHEAD] * len(claims)
        now = self._monotonic()
        self._held.update((c, now) for c, a in zip(claims, answers, strict=True) if a.verdict.is_ours)
        return answers

    async def _finish_all(self, done: Sequence[Done]) -> Sequence[None]:
        if not self._away:
            await self._ask(self._store.finish(done), CALL_TIMEOUT_S)
        return [None] * len(done)

    async def _ask(self, answer: Awaitable[T], timeout_s: float) -> T | None:
        """The store's answer; None, and the store is away, when it gives none in time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except (ClaimsUnavailable, TimeoutError) as error:
            if not self._away:
                self._away = True
                log.warning("claims_away", exc_info=error)
            return None
