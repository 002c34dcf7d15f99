"""What one queue tells people: its metrics, and one canonical line per task."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal, get_args

from prometheus_client import Counter

from schemas import metrics as m
from schemas.base import Priority
from schemas.errors import DeadLetterReason, ErrorCode
from schemas.events import StepCompleted, StepFailed
from schemas.fleet import CircuitState
from schemas.models import Queue
from schemas.pipelines import PipelineSpec, StepSpec
from schemas.tasks import InferenceTask
from services.chassis.kafka.types import Record
from services.chassis.logging import canonical
from services.chassis.metrics import Metrics
from services.worker.domain.engine import Origin
from services.worker.domain.reports import Effort
from services.worker.domain.slots import Slots

Outcome = Literal["succeeded", "failed", "expired", "dropped", "repeated", "undecodable"]
OUTCOMES: tuple[Outcome, ...] = ("succeeded", "failed", "expired", "dropped", "repeated", "undecodable")
DEAD_LETTERED = (DeadLetterReason.UNDECODABLE, DeadLetterReason.POISON)
STEP_COMPONENTS = ("queue", "cold", "service")
TOKENS = ("input", "cached", "resent", "output")
MAX_SERIES = 1_024
ASLEEP_SHARE = 0.1
"""Of a replica's price, while it sleeps: it keeps memory, but neither CPU nor GPU."""
RECENT = 0.1
"""Weight of the newest task in the mean of service times."""


class Telemetry:
    """Counts, times and lines; every child is made once."""

    def __init__(self, queue: Queue, slots: Slots, metrics: Metrics) -> None:
        self._queue = queue
        self._slots = slots
        names = (queue.model_class, queue.backend)
        tasks = metrics.counter(m.TASKS_TOTAL)
        self._tasks = {(lane, end): tasks.labels(*names, lane, end) for lane in Priority for end in OUTCOMES}
        waits = metrics.histogram(m.TASK_QUEUE_SECONDS)
        self._waits = {lane: waits.labels(*names, lane) for lane in Priority}
        self._service = metrics.histogram(m.TASK_SERVICE_SECONDS).labels(*names)
        self._first_text = metrics.histogram(m.TIME_TO_FIRST_TOKEN_SECONDS)
        cold_starts = metrics.histogram(m.COLD_START_SECONDS)
        self._cold_starts = {origin: cold_starts.labels(*names, origin) for origin in get_args(Origin)}
        self._tokens = metrics.counter(m.TOKENS_TOTAL)
        self._cost = metrics.counter(m.COST_USD_TOTAL)
        self._idle_cost = self._cost.labels("", queue.model_class, "idle")
        letters = metrics.counter(m.DEAD_LETTERS_TOTAL)
        self._dead_letters = {why: letters.labels(queue.topic, why) for why in DEAD_LETTERED}
        metrics.gauge(m.SLOTS).labels(*names).set_function(lambda: slots.total)
        metrics.gauge(m.SLOTS_BUSY).labels(*names).set_function(lambda: slots.busy)
        self._breaker = {state: metrics.gauge(m.BREAKER_STATE).labels(*names, state) for state in CircuitState}
        self.breaker(CircuitState.CLOSED)
        self._step_seconds = _step_seconds(queue, metrics)
        self.service_ms: float | None = None
        """Recent mean of the engine's time for a task."""

    def breaker(self, state: CircuitState) -> None:
        """The circuit breaker's state, from now on."""
        for each, gauge in self._breaker.items():
            gauge.set(each is state)

    def started(self, seconds: float, origin: Origin) -> None:
        """The engine went from nothing, or from sleep, to its first health."""
        self._cold_starts[origin].observe(seconds)

    def spoke(self, seconds: float) -> None:
        """The first piece of an answer came so long after the engine was handed the call."""
        self._first_text.labels(self._queue.model_class, self._queue.backend).observe(seconds)

    def idled(self, seconds: float, *, asleep: bool = False) -> None:
        """So long the replica has been there with as many busy slots as now. Idle cost is no pipeline's.

        A busy slot costs its part of those configured; what the engine cannot use of them is idle as well.
        """
        share = ASLEEP_SHARE if asleep else 1 - self._slots.busy / self._queue.slots
        self._idle_cost.inc(self._queue.price.replica_hour_usd * share * seconds / 3_600)

    def ended(self, task: InferenceTask, event: StepCompleted | StepFailed, took: Effort) -> None:
        """A task's report is in the log."""
        error = event.error if isinstance(event, StepFailed) else None
        outcome: Outcome = "succeeded" if error is None else _failure(error.code, took)
        self._tasks[task.lane, outcome].inc()
        self._waits[task.lane].observe(took.queue_ms / 1_000)
        self._stepped(task, took)
        if took.service_ms:
            self._served(task, event, took)
        canonical(
            "task",
            run_id=task.run_id,
            step=task.step,
            attempt=task.attempt,
            tenant=task.tenant,
            pipeline=task.pipeline,
            model_class=task.model_class,
            backend=task.backend,
            lane=task.lane,
            outcome=outcome,
            code=error.code if error else None,
            retryable=error.retryable if error else None,
            queue_ms=took.queue_ms,
            cold_ms=took.cold_ms,
            service_ms=round(took.service_ms, 3),
        )

    def dropped(self, task: InferenceTask, outcome: Literal["dropped", "repeated"]) -> None:
        """A task was not run, and nothing is said in the log: its run is over, or it was done before."""
        self._tasks[task.lane, outcome].inc()
        canonical("task", run_id=task.run_id, step=task.step, attempt=task.attempt, lane=task.lane, outcome=outcome)

    def dead_lettered(self, lane: Priority, record: Record, why: DeadLetterReason, message: str) -> None:
        """A record that is no task; or a task that kills its workers: its failure is counted as any other."""
        if why is DeadLetterReason.UNDECODABLE:
            self._tasks[lane, "undecodable"].inc()
        self._dead_letters[why].inc()
        where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        canonical("task_dead_lettered", **where, reason=why, why=message)

    def _stepped(self, task: InferenceTask, took: Effort) -> None:
        parts = (took.queue_ms - took.cold_ms, took.cold_ms, took.service_ms)
        for counter, milliseconds in zip(self._step_seconds(task.pipeline, task.step), parts, strict=True):
            counter.inc(milliseconds / 1_000)

    def _served(self, task: InferenceTask, event: StepCompleted | StepFailed, took: Effort) -> None:
        self._service.observe(took.service_ms / 1_000)
        mean = took.service_ms if self.service_ms is None else self.service_ms
        self.service_ms = mean + RECENT * (took.service_ms - mean)
        names = (task.pipeline, task.model_class)
        if event.cost_usd:
            self._cost.labels(*names, "busy").inc(event.cost_usd)
        used = took.usage
        resent = used.input_tokens if task.attempt > 1 else 0
        counts = (used.input_tokens, used.cached_tokens, resent, used.output_tokens)
        for kind, count in zip(TOKENS, counts, strict=True):
            if count:
                self._tokens.labels(*names, kind).inc(count)


def count_from_zero(metrics: Metrics, queue: Queue, pipelines: Iterable[PipelineSpec]) -> None:
    """What these pipelines may send to `queue` stands at 0 before it comes: else its first increase is not seen."""
    steps = {(spec.name, step.id) for spec in pipelines for step in spec.steps if queue.model_class in _classes(step)}
    names = {(pipeline, queue.model_class) for pipeline, _ in steps}
    metrics.counter(m.COST_USD_TOTAL, ((*name, "busy") for name in names))
    metrics.counter(m.TOKENS_TOTAL, ((*name, kind) for name in names for kind in TOKENS))
    places = [(*step, queue.model_class, queue.backend) for step in steps]
    metrics.counter(m.STEP_SECONDS_TOTAL, ((*place, part) for place in places for part in STEP_COMPONENTS))


def _classes(step: StepSpec) -> set[str | None]:
    return {step.model_class, *(fallback.model_class for fallback in step.fallback)}


def _step_seconds(queue: Queue, metrics: Metrics) -> Callable[[str, str], tuple[Counter, ...]]:
    """Finds the counters of a pipeline's step, in the order of STEP_COMPONENTS."""
    seconds = metrics.counter(m.STEP_SECONDS_TOTAL)

    @lru_cache(MAX_SERIES)
    def of_step(pipeline: str, step: str) -> tuple[Counter, ...]:
        names = (pipeline, step, queue.model_class, queue.backend)
        return tuple(seconds.labels(*names, component) for component in STEP_COMPONENTS)

    return of_step


def _failure(code: ErrorCode, took: Effort) -> Outcome:
    """Expired: its time was up before the engine saw it."""
    return "expired" if code is ErrorCode.DEADLINE_EXCEEDED and not took.service_ms else "failed"
