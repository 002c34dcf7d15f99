"""What the collector sees, as metrics: written when they are read, so that what is no longer known is not there."""

from collections.abc import Iterable, Sequence

from schemas.fleet import ScalingDecision, WorkerStatus
from schemas.metrics import (
    DESIRED_REPLICAS,
    GROUP_LAG,
    GROUP_OFFSET,
    LAG_SECONDS,
    LAG_TASKS,
    PARTITION_OFFSET,
    PREDICTION_ERROR_RATIO,
    PREWARMS_IN_VAIN_TOTAL,
    PREWARMS_TOTAL,
    REPLICAS,
    WATERMARK_AGE_SECONDS,
    Metric,
)
from schemas.models import Queue
from services.autoscaler.collector import Sample
from services.autoscaler.domain.control import Control
from services.autoscaler.domain.false_warms import Tally
from services.autoscaler.domain.replicas import replicas
from services.chassis.fleet import in_force
from services.chassis.kafka.connection import Connection
from services.chassis.metrics import Metrics

Samples = Iterable[tuple[tuple[str, ...], float | None]]
"""A metric's labels and values; None for what is not known."""


class Telemetry:
    """Groups and topics are named as the broker knows them: other tools' dashboards do so, too."""

    def __init__(self, metrics: Metrics, connection: Connection) -> None:
        self._metrics = metrics
        self._connection = connection
        self._control: Control | None = None
        self._counted: dict[str, Tally] = {}
        """Of that control."""

    def show(self, sample: Sample) -> None:
        """How far behind everything is."""
        lanes = [
            ((queue.model_class, queue.backend, lane.value), behind)
            for queue in sample.watched.queues
            for lane, behind in sample.lanes(queue).items()
        ]
        self._set(LAG_TASKS, ((labels, behind.tasks) for labels, behind in lanes))
        self._set(LAG_SECONDS, ((labels, behind.seconds) for labels, behind in lanes))
        self._set(WATERMARK_AGE_SECONDS, (((service,), age) for service, age in sample.watermark_ages_s().items()))
        self._show_offsets(sample)

    def show_fleet(
        self, queues: Sequence[Queue], workers: Sequence[WorkerStatus], decisions: Sequence[ScalingDecision]
    ) -> None:
        """Who works for each queue. What nobody is heard of is 0: of no queue while the fleet cannot be heard."""
        counted = (
            ((queue.model_class, queue.backend, state), count)
            for queue in queues
            for state, count in replicas(queue, workers).items()
        )
        self._set(REPLICAS, counted)
        decided = in_force(decisions)
        known = [(queue, decided[queue.label]) for queue in queues if queue.label in decided]
        self._set(DESIRED_REPLICAS, (((queue.model_class, queue.backend), it.replicas) for queue, it in known))

    def show_foresight(self, queues: Sequence[Queue], control: Control | None) -> None:
        """Whether what was done ahead was right; only the autoscaler that leads knows."""
        if control is not self._control:
            self._control, self._counted = control, {}
        known = control.predictions if control else {}
        errors = [(queue, known[queue.label].accuracy.error) for queue in queues if queue.label in known]
        self._set(PREDICTION_ERROR_RATIO, (((q.model_class, q.backend), error) for q, error in errors))
        for queue in queues:
            self._count(queue, control.false_warms.tallies.get(queue.label, Tally()) if control else Tally())

    def _count(self, queue: Queue, tally: Tally) -> None:
        before = self._counted.get(queue.label, Tally())
        self._metrics.counter(PREWARMS_TOTAL).labels(queue.model_class).inc(tally.started - before.started)
        self._metrics.counter(PREWARMS_IN_VAIN_TOTAL).labels(queue.model_class).inc(tally.in_vain - before.in_vain)
        self._counted[queue.label] = tally

    def _show_offsets(self, sample: Sample) -> None:
        found = [
            (self._connection.group(group), (self._connection.topic(tp.topic), str(tp.partition)), lag)
            for group, of_group in sample.groups.items()
            for tp, lag in of_group.items()
        ]
        known = [(group, place, lag.offsets) for group, place, lag in found if lag.offsets is not None]
        self._set(GROUP_LAG, (((group, *place), lag.behind.tasks) for group, place, lag in found))
        self._set(GROUP_OFFSET, (((group, *place), offsets.committed) for group, place, offsets in known))
        self._set(PARTITION_OFFSET, ((place, offsets.end) for _, place, offsets in known))

    def _set(self, metric: Metric, samples: Samples) -> None:
        gauge = self._metrics.gauge(metric)
        gauge.clear()
        for labels, value in samples:
            if value is not None:
                gauge.labels(*labels).set(value)
