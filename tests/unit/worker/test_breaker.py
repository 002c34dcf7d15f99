"""When a circuit breaker opens and closes; case by case, and as a machine of any calls in any order."""

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from schemas.fleet import CircuitState
from schemas.models import BreakerRules
from services.worker.domain.breaker import MIN_SLOW_S, STUBBORN_S, TICK_S, UNKNOWN_SLOW_S, Breaker, Tally, Trial
from services.worker.domain.engine import (
    CallerFault,
    ContentTooLarge,
    DeadlineExceeded,
    EngineEnded,
    EngineError,
    EngineFailed,
    EngineUnavailable,
    Outcome,
    Result,
)

CLOSED, OPEN, HALF_OPEN = CircuitState
RULES = BreakerRules()
GOOD, BAD, NOTHING, TIMED_OUT = Tally(good=1), Tally(bad=1), Tally(), Tally(timed_out=1)


class Bench:
    """A breaker under a steady load, on a clock that moves tick by tick."""

    def __init__(self, rules: BreakerRules = RULES) -> None:
        self.now = 1_000.0
        self.breaker = Breaker(rules, self.now)

    def load(self, seconds: float, *, rate: float = 20.0, took_s: float = 0.05, tally: Tally = GOOD) -> float:
        """Calls at a rate, as far as there is room; the time until the state changed, or all of it."""
        began, state = self.now, self.breaker.state
        due, ends = self.now, list[tuple[float, Trial]]()
        while self.now < began + seconds and self.breaker.state is state:
            tick = self.now + TICK_S
            while due < tick:
                if self.breaker.room(1):
                    ends.append((due + took_s, self.breaker.begin(1, due)))
                due += 1 / rate
            for at, trial in [end for end in ends if end[0] < tick]:
                self.breaker.end(trial, tally, at)
                ends.remove((at, trial))
            self.now = tick
            self.breaker.pass_time(self.now)
        for at, trial in ends:
            self.breaker.end(trial, tally, at)
        return self.now - began

    def probe(self, *tallies: Tally, took_s: float = 0.05) -> None:
        """One call after the other."""
        for tally in tallies:
            trial = self.breaker.begin(1, self.now)
            self.breaker.end(trial, tally, self.now + took_s)
            self.pass_time()

    def pass_time(self, seconds: float = TICK_S) -> None:
        self.now += seconds
        self.breaker.pass_time(self.now)

    def opened(self) -> "Bench":
        self.load(5)
        self.breaker.trip(self.now)
        return self


def test_it_is_closed_while_calls_are_good() -> None:
    bench = Bench()
    bench.load(60)
    assert bench.breaker.state is CLOSED


@pytest.mark.parametrize("rate", [2, 5, 20, 200])
def test_it_opens_within_3_s_of_failing(rate: float) -> None:
    bench = Bench()
    bench.load(20, rate=rate)
    assert bench.load(60, rate=rate, took_s=0.01, tally=BAD) <= 3.0
    assert bench.breaker.state is OPEN


@pytest.mark.parametrize("rate", [2, 5, 20, 200])
@pytest.mark.parametrize("usual_s", [0.02, 0.05, 0.2])
def test_it_opens_within_5_s_of_calls_that_take_ten_times_as_long(rate: float, usual_s: float) -> None:
    bench = Bench()
    bench.load(20, rate=rate, took_s=usual_s)
    assert bench.load(60, rate=rate, took_s=10 * usual_s) <= 5.0
    assert bench.breaker.state is OPEN


@pytest.mark.parametrize("slots", [1, 4, 64])
def test_it_opens_when_the_calls_of_all_slots_hang(slots: int) -> None:
    bench = Bench()
    bench.load(20)
    for _ in range(slots):
        bench.breaker.begin(1, bench.now)
    for _ in range(int(5 / TICK_S)):
        bench.pass_time()
    assert bench.breaker.state is OPEN


def test_a_process_that_is_busy_does_not_take_its_own_delays_for_the_engines() -> None:
    """Calls of 5 ms that came back after 180 ms, because 64 of them at once kept the event loop busy meanwhile."""
    bench = Bench()
    bench.load(20, took_s=0.005)
    for _ in range(20):
        trials = [bench.breaker.begin(1, bench.now) for _ in range(64)]
        bench.pass_time(TICK_S + 0.1)
        for trial in trials:
            bench.breaker.end(trial, GOOD, bench.now + 0.03)
        bench.pass_time(TICK_S + 0.02)
    assert bench.breaker.state is CLOSED


def test_one_call_that_hangs_among_many_good_ones_opens_nothing() -> None:
    bench = Bench()
    bench.breaker.begin(1, bench.now)
    bench.load(120)
    assert bench.breaker.state is CLOSED


def test_calls_of_very_different_lengths_open_nothing_while_some_are_quick() -> None:
    """More than half of what is seen is meant to take long, as some functions of a class may be."""
    bench = Bench()
    bench.load(20, took_s=0.01)
    for _ in range(10):
        long = [bench.breaker.begin(1, bench.now) for _ in range(5)]
        for _ in range(8):
            bench.probe(GOOD, took_s=0.01)
            for _ in range(int(0.95 / TICK_S)):
                bench.pass_time()
        for trial in long:
            bench.breaker.end(trial, GOOD, bench.now)
        bench.pass_time()
    assert bench.breaker.state is CLOSED


def test_a_tenth_of_failures_opens_nothing() -> None:
    bench = Bench()
    for number in range(1_000):
        bench.breaker.end(bench.breaker.begin(1, bench.now), BAD if number % 10 == 0 else GOOD, bench.now)
        if number % 5 == 0:
            bench.pass_time()
    assert bench.breaker.state is CLOSED


def test_a_few_failures_open_nothing() -> None:
    bench = Bench()
    bench.probe(BAD, BAD, BAD, BAD)
    assert bench.breaker.state is CLOSED
    bench.probe(BAD)
    assert bench.breaker.state is OPEN


def test_failures_are_forgotten_with_the_window() -> None:
    bench = Bench()
    bench.probe(BAD, BAD, BAD, BAD)
    bench.pass_time(RULES.window / 1_000)
    bench.probe(BAD, BAD, BAD, BAD)
    assert bench.breaker.state is CLOSED


def test_what_says_nothing_of_the_engine_opens_nothing() -> None:
    bench = Bench()
    bench.load(60, tally=NOTHING)
    assert bench.breaker.state is CLOSED


def test_a_call_that_had_no_time_says_nothing_and_one_that_had_it_is_bad() -> None:
    bench = Bench()
    bench.load(20)
    bench.load(20, took_s=0.03, tally=TIMED_OUT)
    assert bench.breaker.state is CLOSED
    bench.load(20, took_s=1.0, tally=TIMED_OUT)
    assert bench.breaker.state is OPEN


def test_what_is_over_in_an_instant_is_never_slow() -> None:
    bench = Bench()
    bench.load(20, took_s=0.001)
    bench.load(20, took_s=0.9 * MIN_SLOW_S)
    assert bench.breaker.state is CLOSED


def test_an_engine_nobody_knows_has_its_time() -> None:
    bench = Bench()
    for _ in range(8):
        bench.breaker.begin(1, bench.now)
    for _ in range(int(0.9 * UNKNOWN_SLOW_S / TICK_S)):
        bench.pass_time()
    assert bench.breaker.state is CLOSED


def test_a_configured_limit_counts_instead_of_the_usual_time() -> None:
    bench = Bench(BreakerRules(slow_call=2_000))
    bench.load(20, took_s=0.05)
    bench.load(20, took_s=1.9)
    assert bench.breaker.state is CLOSED
    bench.load(20, took_s=2.1)
    assert bench.breaker.state is OPEN


def test_a_batch_may_take_longer_than_one_task() -> None:
    bench = Bench()
    bench.load(20, took_s=0.01)
    for _ in range(20):
        trial = bench.breaker.begin(32, bench.now)
        bench.breaker.end(trial, Tally(good=32), bench.now + 0.25)
        bench.pass_time()
    assert bench.breaker.state is CLOSED


def test_a_process_that_stood_still_does_not_blame_its_engine() -> None:
    bench = Bench()
    bench.load(5)
    trials = [bench.breaker.begin(1, bench.now) for _ in range(20)]
    for trial in trials[:10]:
        bench.breaker.end(trial, GOOD, bench.now + 15.0)
    bench.pass_time(15.0)
    for trial in trials[10:]:
        bench.breaker.end(trial, GOOD, bench.now + 0.1)
    bench.pass_time()
    assert bench.breaker.state is CLOSED


def test_an_open_breaker_lets_nothing_pass_until_the_engine_is_proven() -> None:
    bench = Bench().opened()
    bench.load(60)
    assert (bench.breaker.state, bench.breaker.room(8)) == (OPEN, 0)
    bench.breaker.prove(bench.now)
    assert (bench.breaker.state, bench.breaker.room(8)) == (HALF_OPEN, RULES.probes)


def test_good_probes_close_it() -> None:
    bench = Bench().opened()
    bench.breaker.prove(bench.now)
    bench.probe(GOOD, GOOD)
    assert (bench.breaker.state, bench.breaker.room(8)) == (HALF_OPEN, 1)
    bench.probe(GOOD)
    assert (bench.breaker.state, bench.breaker.room(8)) == (CLOSED, 8)


def test_probes_that_come_seldom_close_it_all_the_same() -> None:
    bench = Bench().opened()
    bench.breaker.prove(bench.now)
    for _ in range(RULES.probes):
        bench.pass_time(60.0)
        bench.probe(GOOD)
    assert bench.breaker.state is CLOSED


@pytest.mark.parametrize(("tally", "took_s"), [(BAD, 0.01), (GOOD, 0.5), (TIMED_OUT, 0.5)])
def test_one_bad_probe_opens_it_again(tally: Tally, took_s: float) -> None:
    bench = Bench().opened()
    bench.breaker.prove(bench.now)
    bench.probe(GOOD)
    bench.probe(tally, took_s=took_s)
    assert bench.breaker.state is OPEN


def test_a_probe_that_hangs_opens_it_again() -> None:
    bench = Bench().opened()
    bench.breaker.prove(bench.now)
    bench.breaker.begin(1, bench.now)
    for _ in range(int(0.5 / TICK_S)):
        bench.pass_time()
    assert bench.breaker.state is OPEN


def test_a_probe_that_says_nothing_makes_room_for_another() -> None:
    bench = Bench().opened()
    bench.breaker.prove(bench.now)
    bench.probe(NOTHING, NOTHING, NOTHING)
    assert (bench.breaker.state, bench.breaker.room(8)) == (HALF_OPEN, RULES.probes)


def test_calls_of_an_earlier_state_decide_nothing() -> None:
    bench = Bench()
    bench.load(5)
    old = [bench.breaker.begin(1, bench.now) for _ in range(20)]
    bench.breaker.trip(bench.now)
    bench.breaker.prove(bench.now)
    for trial in old[:10]:
        bench.breaker.end(trial, BAD, bench.now)
    bench.probe(GOOD, GOOD, GOOD)
    for trial in old[10:]:
        bench.breaker.end(trial, BAD, bench.now)
    bench.pass_time()
    assert bench.breaker.state is CLOSED


def test_who_stays_slow_is_what_is_usual_now() -> None:
    bench = Bench().opened()
    began = bench.now
    while bench.breaker.state is not CLOSED:
        bench.pass_time(2.0)
        bench.breaker.prove(bench.now)
        while bench.breaker.state is HALF_OPEN:
            bench.probe(GOOD, took_s=0.6)
    assert STUBBORN_S <= bench.now - began <= STUBBORN_S + 10
    bench.load(20, took_s=0.6)
    assert bench.breaker.state is CLOSED


FAULTS: list[tuple[Outcome, Tally]] = [
    (Result({}), Tally(good=1)),
    (EngineUnavailable("gone"), Tally(bad=1)),
    (EngineEnded("gone for good"), Tally()),
    (EngineFailed("broke"), Tally(bad=1)),
    (EngineFailed("refused", retryable=False), Tally()),
    (CallerFault("input: wrong"), Tally()),
    (ContentTooLarge("input: long"), Tally()),
    (EngineError("ours"), Tally()),
    (DeadlineExceeded("late"), Tally(timed_out=1)),
]


@pytest.mark.parametrize(("outcome", "tally"), FAULTS, ids=lambda case: type(case).__name__)
def test_only_the_engines_own_faults_are_bad(outcome: Outcome, tally: Tally) -> None:
    assert Tally.of([outcome]) == tally


SLOW_S = 1.0


@dataclass(eq=False)
class Call:
    """What the machine knows of a call it made."""

    trial: Trial
    begun: float
    kind: str = "under way"
    ended: float | None = None

    def may_be_bad(self, now: float) -> bool:
        lasted = (now if self.ended is None else self.ended) - self.begun
        return self.kind in ("bad", "timed_out") or lasted > SLOW_S


class BreakerMachine(RuleBasedStateMachine):
    """Calls begin and end in any order, time passes evenly or not, and the engine is proven or found ill."""

    calls = Bundle("calls")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.configured = BreakerRules(probes=2, min_calls=3, slow_call=1_000)
        self.breaker = Breaker(self.configured, self.now)
        self.state = self.breaker.state
        self.of_this_state: list[Call] = []

    def moved(self, *allowed: CircuitState) -> None:
        assert self.breaker.state in allowed
        if self.breaker.state is not self.state:
            self.state = self.breaker.state
            self.of_this_state = []

    @rule(target=calls, tasks=st.integers(1, 4))
    def begin(self, tasks: int) -> Call | None:
        room = self.breaker.room(tasks)
        if not room:
            return None
        call = Call(self.breaker.begin(room, self.now), self.now)
        self.of_this_state.append(call)
        return call

    @rule(call=consumes(calls), kind=st.sampled_from(["good", "bad", "timed_out", "nothing"]))
    def end(self, call: Call | None, kind: str) -> None:
        if call is not None:
            call.kind, call.ended = kind, self.now
            tally = Tally() if kind == "nothing" else Tally(**{kind: call.trial.tasks})
            self.breaker.end(call.trial, tally, self.now)

    @rule(seconds=st.sampled_from([0.25, 0.25, 0.25, 0.3, 2.0, 20.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        of_this_state = self.of_this_state
        self.breaker.pass_time(self.now)
        if self.breaker.state is OPEN and self.state is not OPEN:
            assert any(call.may_be_bad(self.now) for call in of_this_state), "opened for no reason"
        if self.breaker.state is CLOSED and self.state is not CLOSED:
            assert sum(call.trial.tasks for call in of_this_state if call.kind == "good") >= self.configured.probes
            assert all(call.kind != "bad" for call in of_this_state), "closed upon a bad probe"
        self.moved(*{CLOSED: (CLOSED, OPEN), OPEN: (OPEN,), HALF_OPEN: (CLOSED, OPEN, HALF_OPEN)}[self.state])

    @rule()
    def trip(self) -> None:
        self.breaker.trip(self.now)
        self.moved(OPEN)

    @rule()
    def prove(self) -> None:
        self.breaker.prove(self.now)
        self.moved(HALF_OPEN if self.state is OPEN else self.state)

    @rule()
    def everything_fails(self) -> None:
        """From wherever it was: it opens."""
        room = self.breaker.room(1_000)
        for _ in range(room):
            self.of_this_state.append(Call(self.breaker.begin(1, self.now), self.now, "bad", self.now))
            self.breaker.end(self.of_this_state[-1].trial, BAD, self.now)
        self.pass_time(TICK_S)
        assert not room or self.breaker.state is OPEN

    @rule()
    def everything_is_good_again(self) -> None:
        """From wherever it was: a health check and probes close it, whatever is still under way from before."""
        self.trip()
        self.prove()
        while self.breaker.room(1):
            self.of_this_state.append(Call(self.breaker.begin(1, self.now), self.now, "good", self.now))
            self.breaker.end(self.of_this_state[-1].trial, GOOD, self.now)
        self.pass_time(TICK_S)
        assert self.breaker.state is CLOSED

    @invariant()
    def room_is_that_of_the_state(self) -> None:
        room = self.breaker.room(10)
        low, high = {CLOSED: (10, 10), OPEN: (0, 0), HALF_OPEN: (0, self.configured.probes)}[self.breaker.state]
        assert low <= room <= high

    @invariant()
    def probes_under_way_are_bounded(self) -> None:
        if self.state is HALF_OPEN:
            assert (
                sum(call.trial.tasks for call in self.of_this_state if call.ended is None) <= self.configured.probes
            )


TestBreakerMachine = BreakerMachine.TestCase
