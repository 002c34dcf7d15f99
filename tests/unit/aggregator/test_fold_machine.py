"""The fold against its rules: any events in any order at any stamps, with crashes and zombies between."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from schemas import ids
from schemas.base import Output, RunStatus, StepStatus
from schemas.errors import ErrorCode, ErrorDetail
from schemas.events import (
    EVENT,
    Event,
    RequestCoordinates,
    RunCancelled,
    RunFinished,
    RunTicked,
    StepCompleted,
    StepFailed,
    StepSkipped,
)
from schemas.graphs import Graph
from schemas.joins import StepReady
from schemas.usage import TokenUsage
from services.aggregator.domain.decisions import Decision, Dispatch, Finish, Publish
from services.aggregator.domain.fold import LogRecord, fold
from services.aggregator.domain.outcomes import Mapped, finish
from services.aggregator.domain.state import Partition, Run
from tests.unit.aggregator import log
from tests.unit.aggregator.graphs import graphs
from tests.unit.aggregator.rules import Life, Rules, told

WINDOW_MS = 60_000
RUNS = st.sampled_from(["r1", "r2", "r3"])
DIGESTS = st.sampled_from(["d1"] * 4 + ["d2"])
DEADLINES_MS = st.sampled_from([900, 5_000, 5_000, 30_000])
SHIFTS = st.sampled_from([0] * 4 + [-1, 1])
WAITS_MS = st.sampled_from([1, 5_000, 12_000, 31_000, WINDOW_MS, 3 * WINDOW_MS])
AFTER_MS = st.sampled_from([0, 0, 1, 90, 90, 300, 700, 1_100, 5_000])
ERROR = ErrorDetail(code=ErrorCode.ENGINE_FAILED, message="broke")


def opened(partition: Partition, run_id: str) -> Run:
    run = partition.open[run_id]
    assert isinstance(run, Run), "runs are packed in snapshots only"
    return run


def id_of(request_id: str) -> str:
    return ids.run_id("acme", request_id)


class FoldMachine(RuleBasedStateMachine):
    """One events partition, folded by this process while others may answer late, twice, or out of thin air."""

    def __init__(self) -> None:
        super().__init__()
        self.partition = Partition.empty(WINDOW_MS)
        self.law = Rules(WINDOW_MS)
        self.now = log.T0
        self.records: list[LogRecord] = []
        self.decided: list[tuple[Decision, ...]] = []
        self.versions: list[Partition] = [self.partition]
        """The state before each record, and after the last."""
        self.ready: list[StepReady] = []
        self.finishing: list[Run] = []
        self.published: dict[str, RunFinished] = {}
        self.spoken = 0
        self.answered: tuple[str, str, int] | None = None

    @initialize(shapes=st.tuples(graphs(), graphs()))
    def configure(self, shapes: tuple[Graph, Graph]) -> None:
        self.shapes = shapes
        for shape, request_id in enumerate(["r1", "r2"]):
            self.start(request_id, shape, "d1", 0, 30_000)

    def append(self, event: Event) -> None:
        """Folds one more record, and judges what was decided."""
        record = LogRecord(self.now, event)
        before = self.partition
        self.partition, decisions = fold(before, record)
        assert told(decisions) == self.law.on(event, self.now, before, self.partition)
        for decision in decisions:
            self.judge(decision, event)
        self.records.append(record)
        self.decided.append(decisions)
        self.versions.append(self.partition)

    def judge(self, decision: Decision, event: Event) -> None:
        if isinstance(decision, Dispatch):
            self.judge_ready(decision.ready, self.law.open[event.run_id])
            self.ready.append(decision.ready)
        elif isinstance(decision, Finish):
            assert set(decision.run.missing) == self.law.open[event.run_id].missing
            outcome = finish(decision.run, Mapped({"x": 1}))
            assert EVENT.validate_json(EVENT.dump_json(outcome)) == outcome, "it is read back as it was written"
            self.finishing.append(decision.run)
        elif isinstance(decision, Publish):
            assert decision.finished is event
            self.published[event.run_id] = decision.finished

    def judge_ready(self, ready: StepReady, life: Life) -> None:
        """It carries the first outputs that the log holds, and names the link to take."""
        track = life.tracks[ready.step.id]
        known = {read: life.tracks[read].output for read in track.step.reads}
        assert ready.outputs == {read: output for read, output in known.items() if output is not None}
        assert ready.target == track.step.chain[ready.fallback]
        assert all(life.tracks[need].over for need in track.step.needs)
        assert (ready.task_id, ready.ready_at) == (f"{ready.run_id}/{ready.step.id}#{ready.attempt}", self.now)
        own = self.now + track.step.timeout_ms if track.step.timeout_ms is not None else life.deadline_at
        assert ready.step_deadline_at == min(own, life.deadline_at)

    # What orchestrators, workers and clients append -------------------------------------------

    @rule(
        request_id=RUNS,
        shape=st.integers(0, 1),
        digest=DIGESTS,
        age_ms=st.sampled_from([0] * 6 + [5_000, 5_000, WINDOW_MS, WINDOW_MS + 1]),
        deadline_ms=DEADLINES_MS,
    )
    def start(self, request_id: str, shape: int, digest: str, age_ms: int, deadline_ms: int) -> None:
        log_time = self.now - age_ms
        deadline_at = log_time + deadline_ms
        self.append(
            log.started(self.shapes[shape], request_id, digest=digest, log_time=log_time, deadline_at=deadline_at)
        )

    @precondition(lambda self: self.ready)
    @rule(
        data=st.data(),
        answer=st.sampled_from(["completed", "completed", "skipped", "shut", "odd"]),
        shift=SHIFTS,
        after_ms=AFTER_MS,
    )
    def succeed(self, data: st.DataObject, answer: str, shift: int, after_ms: int) -> None:
        self.now += after_ms
        self.answer(data, answer, shift)

    @precondition(lambda self: self.ready)
    @rule(
        data=st.data(), answer=st.sampled_from(["failed", "retryable", "retryable"]), shift=SHIFTS, after_ms=AFTER_MS
    )
    def fail(self, data: st.DataObject, answer: str, shift: int, after_ms: int) -> None:
        self.now += after_ms
        self.answer(data, answer, shift)

    @precondition(lambda self: self.ready)
    @rule(data=st.data(), after_ms=AFTER_MS)
    def answer_again(self, data: st.DataObject, after_ms: int) -> None:
        """To the task that was answered last, whatever became of it."""
        self.now += after_ms
        if self.answered is not None:
            answer = data.draw(st.sampled_from(["completed", "failed", "retryable"]))
            self.speak(*self.answered, answer)

    def answer(self, data: st.DataObject, answer: str, shift: int) -> None:
        """A task of the last few. Shifted, it is an attempt that is stale, or was never dispatched."""
        ready = data.draw(st.sampled_from(self.ready[-5:]))
        self.answered = (ready.run_id, ready.step.id, max(1, ready.attempt + shift))
        self.speak(*self.answered, answer)

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """A produce whose acknowledgement was lost, or a process that woke up: any record once more."""
        self.append(data.draw(st.sampled_from(self.records)).event)

    @rule(request_id=RUNS, kind=st.sampled_from(["cancel", "reject", "nowhere", "unknown"]), digest=DIGESTS)
    def interfere(self, request_id: str, kind: str, digest: str) -> None:
        if kind == "cancel":
            self.append(RunCancelled(run_id=id_of(request_id), tenant="acme", cancelled_by="ops"))
        elif kind == "reject":
            at = RequestCoordinates(topic="inference-requests", partition=0, offset=8, log_time=self.now)
            self.append(log.rejected(request_id, digest).model_copy(update={"request": at}))
        elif kind == "nowhere":
            self.speak(id_of(request_id), "nowhere", 1, "completed")
        else:
            self.speak(id_of("unknown"), "s0", 1, "completed")

    def speak(self, run_id: str, step: str, attempt: int, answer: str) -> None:
        self.spoken += 1
        names: dict[str, Any] = {"run_id": run_id, "tenant": "acme", "step": step, "attempt": attempt}
        if answer == "skipped":
            return self.append(StepSkipped(**names))
        usage = TokenUsage(input_tokens=self.spoken, output_tokens=1)
        model_class = None if self.spoken % 5 == 0 else "llm"
        names |= {"model_class": model_class, "usage": usage, "service_ms": 2.0, "cost_usd": 0.25 * self.spoken}
        if answer in ("failed", "retryable"):
            error = ERROR.model_copy(update={"retryable": answer == "retryable"})
            return self.append(StepFailed(**names, error=error))
        return self.append(StepCompleted(**names, output=Output(value=self.value(run_id, step, answer))))

    def value(self, run_id: str, step: str, answer: str) -> Any:
        """What a gate says is true or false, or odd; any other output tells which answer it was."""
        life = self.law.open.get(run_id)
        is_gate = life and step in life.tracks and life.tracks[step].step.kind == "gate"
        if not is_gate or answer == "odd":
            return f"answer {self.spoken}"
        return answer != "shut"

    # What aggregators append ------------------------------------------------------------------

    @rule(request_id=RUNS)
    def tick(self, request_id: str) -> None:
        """Early or late: the next timer is wherever it is."""
        self.append(RunTicked(run_id=id_of(request_id), tenant="acme"))

    @precondition(lambda self: self.partition.open)
    @rule(data=st.data(), off_ms=st.sampled_from([-1, -1, 0, 0, 1]))
    def tick_when_due(self, data: st.DataObject, off_ms: int) -> None:
        run = opened(self.partition, data.draw(st.sampled_from(sorted(self.partition.open))))
        self.now = max(self.now, run.next_due + off_ms)
        self.append(RunTicked(run_id=run.run_id, tenant="acme"))

    @precondition(lambda self: self.finishing)
    @rule(data=st.data(), answer=st.sampled_from(["one", "other"]))
    def finish(self, data: st.DataObject, answer: str) -> None:
        """Sooner or later, by this process or by one that maps the output differently."""
        self.append(finish(data.draw(st.sampled_from(self.finishing[-4:])), Mapped(answer)))

    @rule(request_id=RUNS)
    def finish_from_elsewhere(self, request_id: str) -> None:
        """By a process whose fold saw another end, while the run is open here."""
        if id_of(request_id) in self.partition.open:
            run = opened(self.partition, id_of(request_id))
            self.append(finish(run.closed(RunStatus.FAILED, self.now), Mapped()))

    # Time, crashes, zombies -------------------------------------------------------------------

    @rule(wait_ms=WAITS_MS)
    def wait(self, wait_ms: int) -> None:
        self.now += wait_ms

    @rule(back_ms=st.sampled_from([1, 500, 20_000, 2 * WINDOW_MS]))
    def step_back(self, back_ms: int) -> None:
        """Another broker leads, whose clock is behind."""
        self.now -= back_ms

    @rule(data=st.data(), fate=st.sampled_from(["crash", "zombie", "silence"]))
    def suffer(self, data: st.DataObject, fate: str) -> None:
        if fate == "crash":
            self.crash()
        elif fate == "zombie":
            self.wake_a_zombie(data)
        else:
            self.nobody_speaks_but_the_clock()

    def crash(self) -> None:
        """A successor reads the same bytes, and goes on from what it makes of them."""
        rebuilt = Partition.empty(WINDOW_MS)
        for record, decided in zip(self.records, self.decided, strict=True):
            event = EVENT.validate_json(EVENT.dump_json(record.event))
            rebuilt, decisions = fold(rebuilt, LogRecord(record.timestamp, event))
            assert decisions == decided
        assert rebuilt == self.partition
        self.partition = rebuilt

    def wake_a_zombie(self, data: st.DataObject) -> None:
        """Whoever stopped at some record and goes on from there comes to the same state and decisions."""
        start = data.draw(st.integers(0, len(self.records)))
        partition = self.versions[start]
        for record, decided in zip(self.records[start:], self.decided[start:], strict=True):
            partition, decisions = fold(partition, record)
            assert decisions == decided
        assert partition == self.partition

    def nobody_speaks_but_the_clock(self) -> None:
        """From here on there are only ticks, each when it is due: every open run ends by its deadline."""
        for run_id in self.partition.open:
            partition, now = self.partition, self.now
            while (run := opened(partition, run_id)).outcome is None:
                assert now < self.law.open[run_id].deadline_at or now == self.now
                now = max(now, run.next_due)
                partition, _ = fold(partition, LogRecord(now, RunTicked(run_id=run_id, tenant="acme")))
                assert opened(partition, run_id) is not run, "a tick that was due changed nothing"

    def teardown(self) -> None:
        self.crash()

    # What always holds ------------------------------------------------------------------------

    @invariant()
    def every_run_stands_where_the_rules_say(self) -> None:
        assert set(self.partition.open) == set(self.law.open)
        for run_id, life in self.law.open.items():
            run = opened(self.partition, run_id)
            assert run.next_due == life.next_due, "every open run has its timer"
            for step_id, state in run.steps.items():
                track = life.tracks[step_id]
                assert (state.status, state.attempt, state.output) == (track.status, track.attempts, track.output)
                assert state.status is StepStatus.SUCCEEDED or state.fallback == track.link
                assert state.cost == track.cost, "unique attempts are charged, and nothing else"

    @invariant()
    def the_same_runs_are_remembered_as_over_and_as_cancelled(self) -> None:
        for run_id in map(id_of, ("r1", "r2", "r3")):
            for memory, notes in (
                (self.partition.finished, self.law.finished),
                (self.partition.cancelled, self.law.cancelled),
            ):
                kept = memory.get(run_id, self.now)
                assert notes.recall(run_id, self.now, kept) == kept


TestFold = FoldMachine.TestCase
TestFold.settings = settings(max_examples=2 * settings().max_examples)
