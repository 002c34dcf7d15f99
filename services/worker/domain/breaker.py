"""Whether an engine may be called: a circuit breaker over one queue's calls on one worker. Pure.

Closed, calls pass and are judged: good, failed by the engine, or slow, when they took several times as long as usual.
Open, none passes, until the engine has answered a health check. Half-open, a few pass to probe it: all good, and it
closes; one bad, and it opens again.

Calls are judged when time passes (`pass_time`), and not when they end: only then is it known how long this process
itself stood still, which is no fault of the engine. A call that is still under way is slow as soon as it is late: one
that has become ten times slower takes long to end, and one that hangs never does.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

from schemas.fleet import CircuitState
from schemas.models import BreakerRules
from services.worker.domain.engine import (
    DeadlineExceeded,
    EngineEnded,
    EngineFailed,
    EngineUnavailable,
    Outcome,
    Result,
)
from services.worker.domain.usual_times import UsualTimes

TICK_S = 0.05
"""How often `pass_time` is called: later, and the process itself was late, or stood still."""
STANDSTILL_S = 0.5
FADING = 0.98
"""How much of a delay of its own the process still allows for at the next tick: it is seldom late just once."""
SLOW_FACTOR = 5.0
MIN_SLOW_S = 0.1
"""What is over sooner harms nobody, however much slower than usual it is."""
UNKNOWN_SLOW_S = 30.0
"""Of an engine whose usual time is not known yet."""
STUBBORN_S = 300.0
"""Whoever is slow for so long is not ill: that is what it takes now, and it is learned anew."""


class Tally(NamedTuple):
    """What became of the tasks of a call. The others, like a caller's fault, say nothing of the engine."""

    good: int = 0
    bad: int = 0
    timed_out: int = 0
    """The engine's fault only if it had its time."""

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> Self:
        """A failure that no repeat can help is an answer about the task: a function's refusal, a wrong key.

        Of an engine that has ended a breaker says nothing: it would outlive its worker, and keep work from the next.
        """
        good = bad = timed_out = 0
        for outcome in outcomes:
            good += isinstance(outcome, Result)
            if isinstance(outcome, EngineUnavailable | EngineFailed) and not isinstance(outcome, EngineEnded):
                bad += outcome.retryable
            timed_out += isinstance(outcome, DeadlineExceeded)
        return cls(good, bad, timed_out)


class Verdict(NamedTuple):
    """How many tasks were judged how."""

    good: int = 0
    failed: int = 0
    slow: int = 0

    def plus(self, other: "Verdict") -> "Verdict":
        return Verdict(self.good + other.good, self.failed + other.failed, self.slow + other.slow)

    def less(self, other: "Verdict") -> "Verdict":
        return Verdict(self.good - other.good, self.failed - other.failed, self.slow - other.slow)


@dataclass(slots=True, eq=False)
class Trial:
    """A call to the engine under way."""

    tasks: int
    begun_s: float
    stood_still_s: float
    """How long the process had stood still by then, in all."""


class Breaker:
    """Times are seconds of one monotonic clock."""

    def __init__(self, rules: BreakerRules, now_s: float) -> None:
        self.state = CircuitState.CLOSED
        self._rules = rules
        self._usual = UsualTimes()
        self._under_way: set[Trial] = set()
        """Those begun in this state: older ones tell of another time."""
        self._ended: list[tuple[Trial, Tally, float]] = []
        """Not judged yet."""
        self._judged: deque[tuple[float, Verdict]] = deque()
        """When, and how, within the window."""
        self._sum = Verdict()
        self._ill_since_s = now_s
        self._passed_s = now_s
        self._late_s = 0.0
        self._stood_still_s = 0.0

    def room(self, wanted: int) -> int:
        """How many of so many tasks may begin now."""
        if self.state is CircuitState.HALF_OPEN:
            probing = sum(trial.tasks for trial in self._under_way) + sum(trial.tasks for trial, *_ in self._ended)
            return max(0, min(wanted, self._rules.probes - self._sum.good - probing))
        return wanted if self.state is CircuitState.CLOSED else 0

    def begin(self, tasks: int, now_s: float) -> Trial:
        """These tasks go to the engine together; the caller has seen that there is room."""
        trial = Trial(tasks, now_s, self._stood_still_s)
        self._under_way.add(trial)
        return trial

    def end(self, trial: Trial, tally: Tally, now_s: float) -> None:
        """The call is over."""
        if trial in self._under_way:
            self._under_way.remove(trial)
            self._ended.append((trial, tally, now_s))

    def pass_time(self, now_s: float) -> None:
        """Judges what has ended and what should have by now."""
        elapsed_s, self._passed_s = now_s - self._passed_s, now_s
        ended, self._ended = self._ended, []
        if elapsed_s >= STANDSTILL_S:
            self._stood_still_s += elapsed_s  # and what ended then cannot be judged
        else:
            late_s = max(0.0, elapsed_s - TICK_S)
            self._stood_still_s += late_s
            self._late_s = max(late_s, FADING * self._late_s)
            for trial, tally, ended_s in ended:
                self._judge(trial, tally, ended_s)
        while self._judged and now_s - self._judged[0][0] > self._rules.window / 1_000:
            self._sum = self._sum.less(self._judged.popleft()[1])
        if self.state is CircuitState.CLOSED and self._fails(now_s):
            self.trip(now_s)
        elif self.state is CircuitState.HALF_OPEN:
            self._conclude(now_s)

    def trip(self, now_s: float) -> None:
        """Opens: also when the engine is known to be ill without any call."""
        if self.state is CircuitState.CLOSED:
            self._ill_since_s = now_s
        self._become(CircuitState.OPEN)

    def prove(self, now_s: float) -> None:
        """The engine has answered a health check: an open breaker lets probes pass."""
        if self.state is CircuitState.OPEN:
            if now_s - self._ill_since_s > STUBBORN_S:
                self._usual.forget()
            self._become(CircuitState.HALF_OPEN)

    def _become(self, state: CircuitState) -> None:
        self.state = state
        self._under_way.clear()
        self._ended.clear()
        self._judged.clear()
        self._sum = Verdict()

    def _judge(self, trial: Trial, tally: Tally, ended_s: float) -> None:
        took_s = self._lasted_s(trial, ended_s)
        if took_s > self._slow_s(trial):
            verdict = Verdict(failed=tally.bad + tally.timed_out, slow=tally.good)
        else:
            verdict = Verdict(good=tally.good, failed=tally.bad)
            if tally.good and self.state is CircuitState.CLOSED:
                self._usual.learn(trial.tasks, took_s, ended_s)
        self._sum = self._sum.plus(verdict)
        # A probe counts until the breaker has made up its mind, however long that takes.
        self._judged.append((ended_s if self.state is CircuitState.CLOSED else math.inf, verdict))

    def _fails(self, now_s: float) -> bool:
        """Whether too many calls fail, or nearly all are slow: some calls are meant to take longer than most.

        One under way for twice the time counts as two, when enough is asked.
        """
        late = weight = 0
        for trial in self._under_way:
            times = int(self._lasted_s(trial, now_s) / self._slow_s(trial))
            late += trial.tasks if times else 0
            weight += trial.tasks * times
        judged = sum(self._sum)
        if judged + weight < self._rules.min_calls:
            return False
        failed, calls = self._sum.failed, judged + late
        return (
            failed >= self._rules.error_rate * calls
            or failed + self._sum.slow + late >= self._rules.slow_rate * calls
        )

    def _conclude(self, now_s: float) -> None:
        late = any(self._lasted_s(trial, now_s) > self._slow_s(trial) for trial in self._under_way)
        if late or self._sum.failed or self._sum.slow:
            self.trip(now_s)
        elif self._sum.good >= self._rules.probes:
            self._become(CircuitState.CLOSED)

    def _lasted_s(self, trial: Trial, until_s: float) -> float:
        return until_s - trial.begun_s - (self._stood_still_s - trial.stood_still_s)

    def _slow_s(self, trial: Trial) -> float:
        """How long a call may take. A process behind its time sees every answer that much later."""
        if self._rules.slow_call is not None:
            return self._rules.slow_call / 1_000 + self._late_s
        usual_s = self._usual.of(trial.tasks)
        return (UNKNOWN_SLOW_S if usual_s is None else max(MIN_SLOW_S, SLOW_FACTOR * usual_s)) + self._late_s
