"""Callers who keep lanes full, and the shares of what was served."""

import asyncio
from collections import Counter

from loadtest.saturation import saturated, shares_percent
from schemas.base import Priority


async def test_every_lane_has_its_callers_until_all_are_answered() -> None:
    asked: Counter[Priority] = Counter()
    full, let_go = asyncio.Event(), asyncio.Event()

    async def ask(lane: Priority) -> bool:
        asked[lane] += 1
        if asked.total() == 9:
            full.set()
        await let_go.wait()
        return lane is not Priority.BATCH

    async with saturated(ask, 3) as saturation:
        await full.wait()
        assert asked == dict.fromkeys(Priority, 3)
        assert saturation.served.total() == 0
        saturation.end()
        let_go.set()
    assert saturation.served == {Priority.INTERACTIVE: 3, Priority.STANDARD: 3}
    assert saturation.failed == 3


def test_shares_are_of_what_was_served_in_between() -> None:
    before = Counter({Priority.INTERACTIVE: 100, Priority.BATCH: 1})
    after = Counter({Priority.INTERACTIVE: 170, Priority.STANDARD: 24, Priority.BATCH: 7})
    assert shares_percent(before, after) == {"interactive": 70.0, "standard": 24.0, "batch": 6.0}
    assert shares_percent(before, before) == {"interactive": 0.0, "standard": 0.0, "batch": 0.0}
