"""What `headway top` shows: pure. What is not known is None, never 0."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from headway.cli.window import By, Movement
from schemas import metrics as m
from schemas.base import Priority, RunStatus

TASK_FAILED = frozenset({"failed", "expired", "undecodable"})
RUN_FAILED = frozenset({RunStatus.FAILED, RunStatus.EXPIRED})
SHARES = (0.5, 0.95)
AT_WORK = ("warm", "starting", "draining", "failed")
"""States of a worker that is there: of a queue without one the next task waits for a start."""
HOUR_S = 3_600
QUEUE = ("model_class", "backend")


@dataclass(frozen=True, slots=True)
class LaneNow:
    """One lane of one queue. Slots, engine times and replicas are the whole queue's: lanes share them."""

    model_class: str
    lane: str
    tasks_behind: int | None
    seconds_behind: float | None
    """The age of the oldest task that is not committed."""
    tasks_per_second: float | None
    wait_p50_ms: float | None
    wait_p95_ms: float | None
    failed_share: float | None
    """Of the tasks that ended: failed, expired or unreadable."""
    busy_slots: int | None
    slots: int | None
    service_p50_ms: float | None
    service_p95_ms: float | None
    replicas: Mapping[str, int] | None
    """Workers by state."""

    @property
    def quiet(self) -> bool:
        """Known to have nothing to do, and to have done nothing."""
        return self.tasks_behind == 0 and self.tasks_per_second == 0


@dataclass(frozen=True, slots=True)
class PipelineNow:
    """One pipeline's runs."""

    pipeline: str
    runs_per_second: float | None
    p50_ms: float | None
    p95_ms: float | None
    promised_ms: float | None
    """What its `slo` says."""
    partial_share: float | None
    failed_share: float | None
    """Failed or expired; blocked and cancelled runs are neither."""
    cost_usd_per_hour: float | None
    cost_usd_per_run: float | None


@dataclass(frozen=True, slots=True)
class Picture:
    """A plane at work."""

    window_s: float
    """Rates, shares, times and costs are those of so many seconds."""
    pipelines: tuple[PipelineNow, ...]
    lanes: tuple[LaneNow, ...]
    asleep: tuple[str, ...] | None
    """Model classes without a worker that is there."""
    open_runs: int | None
    cost_usd_per_hour: float | None
    idle_usd_per_hour: float | None
    """Of that, what replicas cost whose slots are free."""
    silent: tuple[str, ...]
    """Services that do not answer."""


IDLE = ("",)
"""No pipeline's: what idle replicas cost."""


def picture(moved: Movement) -> Picture:
    """What the services tell of themselves."""
    lanes = tuple(_lanes(moved))
    costs, kinds = moved.per_second(m.COST_USD_TOTAL), moved.per_second(m.COST_USD_TOTAL, "kind")
    return Picture(
        window_s=moved.seconds,
        pipelines=tuple(_pipelines(moved)),
        lanes=lanes,
        asleep=_asleep(lanes),
        open_runs=_whole(moved.now(m.OPEN_RUNS).get(())),
        cost_usd_per_hour=_hourly(costs.get(())),
        idle_usd_per_hour=_hourly(kinds.get(("idle",))),
        silent=moved.last.silent,
    )


def _lanes(moved: Movement) -> Iterator[LaneNow]:
    behind, seconds = moved.told(m.LAG_TASKS, *QUEUE, "lane"), moved.told(m.LAG_SECONDS, *QUEUE, "lane")
    ended = moved.per_second(m.TASKS_TOTAL, *QUEUE, "lane", "outcome")
    waits = moved.quantiles(m.TASK_QUEUE_SECONDS, SHARES, *QUEUE, "lane")
    times = moved.quantiles(m.TASK_SERVICE_SECONDS, SHARES, *QUEUE)
    slots, busy = moved.now(m.SLOTS, *QUEUE), moved.now(m.SLOTS_BUSY, *QUEUE)
    replicas = _by_state(moved.told(m.REPLICAS, *QUEUE, "state"))
    queues = sorted({key[:2] for of_queues in (behind, ended, slots, replicas) for key in of_queues})
    names = _names(queues)
    for queue in queues:
        for lane in Priority:
            key = (*queue, lane.value)
            outcomes = {outcome: rate for (*of, outcome), rate in ended.items() if tuple(of) == key}
            yield LaneNow(
                names[queue],
                lane.value,
                _whole(behind.get(key)),
                seconds.get(key),
                sum(outcomes.values()) if outcomes else None,
                *_milliseconds(waits.get(key)),
                _share(outcomes, TASK_FAILED),
                _whole(busy.get(queue)),
                _whole(slots.get(queue)),
                *_milliseconds(times.get(queue)),
                replicas.get(queue),
            )


def _pipelines(moved: Movement) -> Iterator[PipelineNow]:
    ended = moved.per_second(m.RESPONSES_TOTAL, "pipeline", "status")
    times = moved.quantiles(m.RUN_SECONDS, SHARES, "pipeline")
    costs = moved.per_second(m.COST_USD_TOTAL, "pipeline")
    promised = moved.told(m.SLO_LATENCY_SECONDS, "pipeline")
    known = {key[:1] for of_pipelines in (ended, costs, promised) for key in of_pipelines}
    for pipeline in sorted(known - {IDLE}):
        statuses = {status: rate for (name, status), rate in ended.items() if name == pipeline[0]}
        runs, cost = sum(statuses.values()), costs.get(pipeline)
        p50, p95 = _milliseconds(times.get(pipeline))
        yield PipelineNow(
            pipeline=pipeline[0],
            runs_per_second=runs if statuses else None,
            p50_ms=p50,
            p95_ms=p95,
            promised_ms=promised[pipeline] * 1_000 if pipeline in promised else None,
            partial_share=_share(statuses, {RunStatus.PARTIAL}),
            failed_share=_share(statuses, RUN_FAILED),
            cost_usd_per_hour=_hourly(cost),
            cost_usd_per_run=cost / runs if cost is not None and runs else None,
        )


def _asleep(lanes: Iterable[LaneNow]) -> tuple[str, ...] | None:
    known = {lane.model_class: lane.replicas for lane in lanes if lane.replicas is not None}
    if not known:
        return None
    return tuple(name for name, states in known.items() if not any(states.get(state) for state in AT_WORK))


def _by_state(told: Mapping[By, float]) -> dict[By, Mapping[str, int]]:
    found: dict[By, dict[str, int]] = {}
    for (*queue, state), count in told.items():
        found.setdefault(tuple(queue), {})[state] = int(count)
    return dict(found)


def _names(queues: Collection[By]) -> Mapping[By, str]:
    """`class` where it has one backend, `class.backend` where there are several."""
    classes = [queue[0] for queue in queues]
    return {queue: queue[0] if classes.count(queue[0]) == 1 else ".".join(queue) for queue in queues}


def _share(rates: Mapping[str, float], of: Collection[str]) -> float | None:
    """None where nothing ended: of nothing there is no share."""
    total = sum(rates.values())
    return sum(rate for name, rate in rates.items() if name in of) / total if total else None


def _milliseconds(seconds: Collection[float] | None) -> tuple[float | None, float | None]:
    if seconds is None:
        return None, None
    p50, p95 = (value * 1_000 for value in seconds)
    return p50, p95


def _hourly(per_second: float | None) -> float | None:
    return None if per_second is None else per_second * HOUR_S


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
