"""A component with scripted outages: when they begin and end, and what its breaker says, by the broker's clock."""

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import yaml

from schemas.fleet import BreakerState, CircuitState, FleetStatus, WorkerStatus
from schemas.models import ModelsFile, SimulatedEngine

READY_TIMEOUT_S = 60.0


class Spell(NamedTuple):
    """One outage, in log time."""

    kind: str
    begins_ms: int
    ends_ms: int


class Component:
    """The only worker of a class with a simulated engine, as it speaks on the fleet topic."""

    def __init__(self, models_yaml: Path, model_class: str) -> None:
        models = ModelsFile.model_validate(yaml.safe_load(models_yaml.read_text()))
        (backend,) = models.model_classes[model_class].backends
        assert isinstance(backend.engine, SimulatedEngine)
        self._outages = backend.engine.outages
        self._model_class = model_class
        self._states: list[tuple[int, CircuitState]] = []
        self._ready_ms: int | None = None
        self._ready = asyncio.Event()
        self.workers: set[str] = set()
        """A second one began its outages anew: nothing could be measured."""
        self.now_ms = 0
        """Log time of the newest status."""

    async def spells(self) -> list[Spell]:
        """Its outages, once the worker has said when it became ready."""
        async with asyncio.timeout(READY_TIMEOUT_S):
            await self._ready.wait()
        assert self._ready_ms is not None
        return [
            Spell(each.kind, self._ready_ms + round(each.after_s * 1_000), self._end_ms(each.after_s + each.for_s))
            for each in self._outages
        ]

    def _end_ms(self, after_s: float) -> int:
        assert self._ready_ms is not None
        return self._ready_ms + round(after_s * 1_000)

    def first_ms(self, state: CircuitState, from_ms: int) -> int | None:
        """When its breaker was first said to be in that state, from then on."""
        return next((at for at, said in self._states if at >= from_ms and said is state), None)

    def opens_s(self, spell: Spell) -> float | None:
        """From the begin of an outage."""
        return _seconds(spell.begins_ms, self.first_ms(CircuitState.OPEN, spell.begins_ms))

    def closes_s(self, spell: Spell) -> float | None:
        """From the end of an outage."""
        return _seconds(spell.ends_ms, self.first_ms(CircuitState.CLOSED, spell.ends_ms))

    def hear(self, at_ms: int, status: FleetStatus) -> None:
        """Takes a status, in log order."""
        self.now_ms = at_ms
        if isinstance(status, BreakerState) and status.model_class == self._model_class:
            self._states.append((at_ms, status.state))
        elif isinstance(status, WorkerStatus) and status.model_class == self._model_class and status.ready_at:
            self.workers.add(status.instance)
            self._ready_ms = self._ready_ms or status.ready_at
            self._ready.set()


def worst(values: Collection[float | None]) -> float | None:
    """The largest; None when one never came."""
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _seconds(from_ms: int, to_ms: int | None) -> float | None:
    return None if to_ms is None else round((to_ms - from_ms) / 1_000, 2)
