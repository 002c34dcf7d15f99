"""A campaign makes every fault of its schedule; those of different things overlap, those of one thing never do."""

import asyncio
import random
from typing import cast

from loadtest.chaos.campaign import Campaign
from loadtest.chaos.kinds import Field, Kind
from loadtest.chaos.schedule import Planned
from loadtest.nemesis.fault import Evidence

NOTHING = cast(Field, None)
"""Fake faults need no field."""


class Faults:
    """Fake ones: each lasts until all that can be under way at once are."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._all = asyncio.Event()
        self.under_way: list[str] = []
        self.most: list[str] = []

    async def make(self, _field: Field, target: str, _rng: random.Random) -> Evidence:
        assert target not in self.under_way
        self.under_way.append(target)
        self.most = max(self.most, list(self.under_way), key=len)
        if len(self.under_way) == self._at_once:
            self._all.set()
        await asyncio.wait_for(self._all.wait(), 10)
        self.under_way.remove(target)
        return Evidence("made")


async def test_faults_of_different_things_overlap_and_those_of_one_thing_take_turns() -> None:
    faults = Faults(at_once=2)
    kinds = {"kill": Kind(1, ("one",), faults.make), "freeze": Kind(1, ("one",), faults.make),
             "flush": Kind(1, ("other",), faults.make)}  # fmt: skip
    campaign = Campaign(kinds, NOTHING, seed=1, say=lambda _: None)
    await campaign.run([Planned(0, "kill"), Planned(0, "freeze"), Planned(0, "flush"), Planned(0, "kill")])
    assert sorted(strike.kind for strike in campaign.strikes) == ["flush", "freeze", "kill", "kill"]
    assert sorted(faults.most) == ["one", "other"]


async def test_a_free_target_is_chosen_before_one_that_is_held() -> None:
    faults = Faults(at_once=3)
    kinds = {"kill": Kind(1, ("one", "two", "three"), faults.make)}
    campaign = Campaign(kinds, NOTHING, seed=1, say=lambda _: None)
    await campaign.run([Planned(0, "kill")] * 3)
    assert sorted(strike.target for strike in campaign.strikes) == ["one", "three", "two"]


async def test_kinds_that_hold_the_same_thing_take_turns_whatever_their_targets() -> None:
    faults = Faults(at_once=1)
    kinds = {"kill": Kind(1, ("aggregator", "aggregator-2"), faults.make, holds="aggregator")}
    campaign = Campaign(kinds, NOTHING, seed=1, say=lambda _: None)
    await campaign.run([Planned(0, "kill")] * 4)
    assert len(faults.most) == 1
    assert len(campaign.strikes) == 4


async def test_a_fault_that_cannot_be_made_is_noted_and_stops_nothing() -> None:
    async def impossible(_field: Field, _target: str, _rng: random.Random) -> Evidence:
        raise OSError("no such process")

    kinds = {"kill": Kind(1, ("one",), impossible), "flush": Kind(1, ("one",), Faults(1).make)}
    campaign = Campaign(kinds, NOTHING, seed=1, say=lambda _: None)
    await campaign.run([Planned(0, "kill"), Planned(0, "flush")])
    assert [strike.evidence for strike in campaign.strikes] == [Evidence(), Evidence("made")]
