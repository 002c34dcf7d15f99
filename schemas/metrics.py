"""Every metric, in one place: base units, no request id as a label, histograms that reach 300 s."""

from dataclasses import dataclass
from typing import Literal

SECONDS_BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's name, kind, help and labels."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


REQUESTS_TOTAL = Metric("headway_requests_total", "counter", "Requests admitted.", ("pipeline", "priority"))
REQUESTS_SHED_TOTAL = Metric(
    "headway_requests_shed_total", "counter", "Requests refused because too many runs were open.", ("priority",)
)
SPILLED_TASKS_TOTAL = Metric(
    "headway_spilled_tasks_total",
    "counter",
    "Tasks given to this backend because a cheaper one of the class was late, not heard of, or ill.",
    ("model_class", "backend"),
)
RESPONSES_TOTAL = Metric("headway_responses_total", "counter", "Responses published.", ("pipeline", "status"))
RUN_SECONDS = Metric("headway_run_seconds", "histogram", "Request to outcome.", ("pipeline", "status"))
RUN_COMPONENT_SECONDS = Metric(
    "headway_run_component_seconds", "histogram",
    "Critical path by component: queue, cold, service, coordination.", ("pipeline", "component"),
)  # fmt: skip
STEP_SECONDS_TOTAL = Metric(
    "headway_step_seconds_total",
    "counter",
    "Time of a pipeline's steps by component, over all attempts: queue, cold, service.",
    ("pipeline", "step", "model_class", "backend", "component"),
)
SLO_LATENCY_SECONDS = Metric(
    "headway_slo_latency_seconds",
    "gauge",
    "Latency a pipeline promises, and the bucket of headway_run_seconds that tells whether it was kept.",
    ("pipeline", "bucket"),
)
SLO_OBJECTIVE = Metric(
    "headway_slo_objective", "gauge", "Share of runs that a pipeline promises to be in time.", ("pipeline",)
)
TASKS_TOTAL = Metric(
    "headway_tasks_total", "counter", "Tasks a worker ended.", ("model_class", "backend", "lane", "outcome")
)
TASK_QUEUE_SECONDS = Metric(
    "headway_task_queue_seconds", "histogram", "Task record to engine.", ("model_class", "backend", "lane")
)
TASK_SERVICE_SECONDS = Metric(
    "headway_task_service_seconds", "histogram", "Time in the engine.", ("model_class", "backend")
)
TIME_TO_FIRST_TOKEN_SECONDS = Metric(
    "headway_time_to_first_token_seconds",
    "histogram",
    "Hand-over to the engine to its first piece of text; of engines that stream.",
    ("model_class", "backend"),
)
SLOTS = Metric("headway_slots", "gauge", "Slots that this worker may use now.", ("model_class", "backend"))
SLOTS_BUSY = Metric("headway_slots_busy", "gauge", "Slots at work.", ("model_class", "backend"))
COLD_START_SECONDS = Metric(
    "headway_cold_start_seconds",
    "histogram",
    "Engine start to its first health.",
    ("model_class", "backend", "from"),
)
BREAKER_STATE = Metric(
    "headway_breaker_state",
    "gauge",
    "1 for the state the circuit breaker is in: closed, open, half-open.",
    ("model_class", "backend", "state"),
)
TOKENS_TOTAL = Metric(
    "headway_tokens_total",
    "counter",
    "Tokens by kind: input (all of a prompt), of these cached and resent (by an attempt after the first), output.",
    ("pipeline", "model_class", "kind"),
)
COST_USD_TOTAL = Metric("headway_cost_usd_total", "counter", "Cost of work.", ("pipeline", "model_class", "kind"))
DEAD_LETTERS_TOTAL = Metric("headway_dead_letters_total", "counter", "Records dead-lettered.", ("topic", "reason"))
OPEN_RUNS = Metric("headway_open_runs", "gauge", "Runs without an outcome yet.", ("partition",))
WORKER_RESTARTS_TOTAL = Metric(
    "headway_worker_restarts_total", "counter", "Workers a host restarted.", ("model_class", "backend")
)
LAG_TASKS = Metric(
    "headway_lag_tasks", "gauge", "Tasks appended, but not committed yet.", ("model_class", "backend", "lane")
)
LAG_SECONDS = Metric(
    "headway_lag_seconds",
    "gauge",
    "Age of the oldest task that is not committed, by the log's time.",
    ("model_class", "backend", "lane"),
)
GROUP_LAG = Metric(
    "kafka_consumergroup_lag",
    "gauge",
    "Records that a group has not committed yet.",
    ("consumergroup", "topic", "partition"),
)
GROUP_OFFSET = Metric(
    "kafka_consumergroup_current_offset",
    "gauge",
    "Offset that a group has committed.",
    ("consumergroup", "topic", "partition"),
)
PARTITION_OFFSET = Metric(
    "kafka_topic_partition_current_offset", "gauge", "Offset of the next record.", ("topic", "partition")
)
WATERMARK_AGE_SECONDS = Metric(
    "headway_watermark_age_seconds",
    "gauge",
    "Age of the oldest record that a service has not committed.",
    ("service",),
)
REPLICAS = Metric(
    "headway_replicas",
    "gauge",
    "Workers by state: warm, asleep, starting, draining, failed.",
    ("model_class", "backend", "state"),
)
DESIRED_REPLICAS = Metric(
    "headway_desired_replicas", "gauge", "Workers that the hosts are to keep.", ("model_class", "backend")
)
PREDICTION_ERROR_RATIO = Metric(
    "headway_prediction_error_ratio",
    "gauge",
    "How far the predicted load was off in the last hours, of the load that came.",
    ("model_class", "backend"),
)
PREWARMS_TOTAL = Metric(
    "headway_prewarms_total", "counter", "Classes started because runs were to call them.", ("model_class",)
)
PREWARMS_IN_VAIN_TOTAL = Metric(
    "headway_prewarms_in_vain_total", "counter", "Of these, the ones that no run called.", ("model_class",)
)

METRICS = tuple(value for value in globals().values() if isinstance(value, Metric))
