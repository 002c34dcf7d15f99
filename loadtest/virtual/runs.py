"""Runs going through their graphs in virtual time, and the events that the autoscaler reads of them."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Protocol

from loadtest.virtual.calendar import Calendar
from loadtest.virtual.pipeline import Pipeline
from loadtest.virtual.pool import Pool
from services.autoscaler.domain.open_runs import OpenRuns

DEADLINE_S = 3_600.0


class Taker(Protocol):
    """Whoever takes calls."""

    def submit(self, done: Callable[[], None]) -> None:
        """A call has come; `done` is to be called when it is."""


@dataclass(slots=True)
class _Run:
    run_id: str
    pipeline: Pipeline
    began_s: float
    waiting: dict[str, int]
    """By step that has not begun: how many of those it needs are not over."""
    steps_left: int


class Runs:
    """All of them. A step begins the moment that all it needs is over: coordination takes no time here."""

    def __init__(self, pools: Mapping[str, Pool], calendar: Calendar, dice: random.Random, told: OpenRuns) -> None:
        self.took_s: list[float] = []
        """Of each run that is over."""
        self.open = 0
        self._takers: dict[str, Taker] = dict(pools)
        self._calendar = calendar
        self._dice = dice
        self._told = told
        self._ids = count()

    def tell(self, told: OpenRuns) -> None:
        """Somebody else reads the events from now on."""
        self._told = told

    def route(self, model_class: str, taker: Taker) -> None:
        """Calls of a class go to another one than its pool."""
        self._takers[model_class] = taker

    def start(self, pipeline: Pipeline) -> None:
        """A request has come."""
        steps = pipeline.graph.steps
        now_s = self._calendar.now_s
        run = _Run(str(next(self._ids)), pipeline, now_s, {step.id: len(step.needs) for step in steps}, len(steps))
        self.open += 1
        self._told.start(run.run_id, pipeline.graph, (now_s + DEADLINE_S) * 1_000)
        for step in steps:
            if not step.needs:
                self._begin(run, step.id)

    def _begin(self, run: _Run, name: str) -> None:
        share = run.pipeline.shares[name]
        if share < 1 and self._dice.random() >= share:
            self._over(run, name, taken=False)
            return
        model_class = next(step for step in run.pipeline.graph.steps if step.id == name).chain[0].model_class
        self._takers[str(model_class)].submit(partial(self._over, run, name, taken=True))

    def _over(self, run: _Run, name: str, *, taken: bool) -> None:
        self._told.decide(run.run_id, name, taken=taken)
        run.steps_left -= 1
        if not run.steps_left:
            self._end(run)
        for follower in run.pipeline.followers[name]:
            run.waiting[follower] -= 1
            if not run.waiting[follower]:
                self._begin(run, follower)

    def _end(self, run: _Run) -> None:
        self.open -= 1
        self.took_s.append(self._calendar.now_s - run.began_s)
        self._told.end(run.run_id, teaches=True)
