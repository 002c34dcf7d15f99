"""What the nemesis asks of the clients for a while: requests scripted, repeated, contradicted or cancelled."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from loadtest.nemesis.fault import Evidence, until

TOUCHED_WITHIN_S = 90.0
"""There may be no broker to acknowledge anything."""


class Mood(StrEnum):
    """One way in which requests are not as usual."""

    ENGINE_FAILING = "engine-failing"
    ENGINE_HANGING = "engine-hanging"
    ENGINE_SLOW = "engine-slow"
    LARGE = "large"
    REPEATED = "repeated"
    CONFLICTING = "conflicting"
    CANCELLED_BEFORE = "cancelled-before"
    CANCELLED_AFTER = "cancelled-after"


SCRIPTS = frozenset({Mood.ENGINE_FAILING, Mood.ENGINE_HANGING, Mood.ENGINE_SLOW, Mood.LARGE})
"""Moods that choose the pipeline, and tell its engine what to do."""


class Weather:
    """The moods of the moment, and which requests each has touched."""

    def __init__(self) -> None:
        self._touched: defaultdict[Mood, list[list[str]]] = defaultdict(list)

    def moods(self, number: int) -> list[Mood]:
        """Those for request `number`.

        Moods that script a request take turns, for it can follow only one; and with the others, which would not show
        in a request that fails by its script.
        """
        scripts = [mood for mood in Mood if self._touched[mood] and mood in SCRIPTS]
        others = [mood for mood in Mood if self._touched[mood] and mood not in SCRIPTS]
        if not scripts or (others and number % 2 == 0):
            return others
        turn = number // 2 if others else number
        return [scripts[turn % len(scripts)]]

    def touch(self, mood: Mood, request_id: str) -> None:
        """This request was made as the mood asks. Nothing happens if it is no longer in force."""
        for touched in self._touched[mood]:
            touched.append(request_id)

    @contextmanager
    def of(self, mood: Mood) -> Iterator[list[str]]:
        """Puts a mood in force; the list fills with the requests that it touches."""
        touched: list[str] = []
        self._touched[mood].append(touched)
        try:
            yield touched
        finally:
            self._touched[mood] = [other for other in self._touched[mood] if other is not touched]


async def hold(weather: Weather, mood: Mood, for_s: float) -> Evidence:
    """A mood for a while from the first request it touches on; the log must show it for one of them."""
    with weather.of(mood) as touched:
        await until(lambda: bool(touched), TOUCHED_WITHIN_S)
        await asyncio.sleep(for_s)
    return Evidence(expected=tuple(f"{mood} {request_id}" for request_id in touched))
