"""`headway-lag`: what is behind, by how many seconds, and whether people feel it."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from infra.grafana.board import COLD_STARTS, FLEET, LAG, LATENCY, MODEL_CLASS, Question, board, chosen
from infra.grafana.panels import (
    NONE_EXPECTED,
    SHARE_OF_SLOTS,
    About,
    Column,
    Limits,
    Next,
    Panel,
    Series,
    stat,
    table,
    trend,
)
from infra.grafana.promql import FINE, mean, once, per_second, ratio, worst

CHOSEN = chosen(MODEL_CLASS)
QUEUE = "model_class, backend, lane"
PARTITION = "consumergroup, topic, partition"
ADMISSION = 'consumergroup=~".*headway-orchestrator-requests"'
REPLICA = "model_class, backend, state"
ON_THEIR_WAY = f'state=~"starting|draining", {CHOSEN}'
LIMITS = {"interactive": Limits(2, 10), "standard": Limits(15, 60), "batch": Limits(300, 1_800)}
"""Seconds behind, by lane; from the second figure on the alert HeadwayLagSecondsHigh speaks."""
GONE = (
    f"count(max by ({QUEUE}) (last_over_time(headway_lag_tasks{{{CHOSEN}}}[10m]))"
    f" unless max by ({QUEUE}) (headway_lag_tasks{{{CHOSEN}}}))"
    " or absent(headway_lag_tasks) or vector(0)"
)
"""Queues whose lag was read within ten minutes and is not now; 1 if none can be read."""


def dashboard() -> Dashboard:
    """Lag by class and lane."""
    return board(
        LAG,
        "Lag",
        "Which model class is behind, by how many seconds, and whether interactive requests feel it.",
        MODEL_CLASS,
        [
            Question("Who waits?", [*_answers(), _queues()]),
            Question("Since when?", _trends()),
            Question("Why?", _reasons()),
            Question("Or is it the plane itself?", _coordination()),
        ],
    )


def _answers() -> list[Panel]:
    return [
        *(_furthest_behind(lane, limits) for lane, limits in LIMITS.items()),
        stat(
            About(
                title="Queues nobody can read",
                description="Their lag is unknown, not 0: the broker or the collector (autoscaler) is away, or the"
                " class was removed within the last ten minutes.",
                unit="none",
                limits=NONE_EXPECTED,
                next=Next("Is the collector there?", FLEET),
            ),
            Series("", GONE),
        ),
        stat(
            About(
                title="Refused at the door, 5 min",
                description="Requests answered `overloaded` because too many runs were open.",
                unit="none",
                limits=NONE_EXPECTED,
                decimals=0,
                next=Next("How many runs are open, and how slow are they?", LATENCY),
            ),
            Series("", "sum(increase(headway_requests_shed_total[5m]))"),
        ),
        stat(
            About(
                title="Not admitted yet",
                description="Requests in the ingress topics that the orchestrator has not read.",
                unit="none",
                limits=Limits(100, 1_000),
                decimals=0,
                next=Next("Is the orchestrator there?", FLEET),
            ),
            Series("", f"sum({once('kafka_consumergroup_lag', PARTITION, ADMISSION)})"),
        ),
    ]


def _furthest_behind(lane: str, limits: Limits) -> Panel:
    return stat(
        About(
            title=f"Furthest behind, {lane}",
            description=f"Age of the oldest task in any {lane} lane that is not done, and its class.",
            unit="s",
            limits=limits,
            next=Next("What is this class doing?", FLEET, carry="model_class"),
        ),
        Series(
            "{{model_class}}",
            worst(once("headway_lag_seconds", "model_class", f'lane="{lane}", {CHOSEN}')),
        ),
    )


def _of_its_limit() -> str:
    """Seconds behind as a share of what the lane may be behind: batch waits longer than people do."""
    lanes = ((limits.bad, f'lane="{lane}", {CHOSEN}') for lane, limits in LIMITS.items())
    return " or ".join(f"{once('headway_lag_seconds', QUEUE, where)} / {limit}" for limit, where in lanes)


def _queues() -> Panel:
    read = f"timestamp(headway_lag_tasks{{{CHOSEN}}})[10m:15s]"
    return table(
        About(
            title="Behind, by class and lane",
            description="Every queue whose lag was read within ten minutes. What cannot be read now says so: it is"
            " not 0. Seconds are the age of the oldest task that is not done; the limit is 10 s for an interactive"
            " lane, 60 s for a standard one, 30 min for batch.",
            unit="none",
            width=24,
            labels={"model_class": "Class", "backend": "Backend", "lane": "Lane"},
            next=Next("What is this class doing?", FLEET, carry="model_class"),
        ),
        Column("Of its limit", _of_its_limit(), "percentunit", Limits(0.2, 1), decimals=0),
        Column("Behind", once("headway_lag_seconds", QUEUE, CHOSEN), "s"),
        Column("Tasks not done", once("headway_lag_tasks", QUEUE, CHOSEN), "none"),
        Column("Done per second", per_second("headway_tasks_total", CHOSEN, by=QUEUE), "ops"),
        Column("Last read", f"time() - max by ({QUEUE}) (max_over_time({read}))", "s", Limits(30, 60)),
        sort_by="Of its limit",
    )


def _trends() -> list[Panel]:
    return [
        trend(
            About(
                title="Seconds behind, interactive",
                description="People wait for these. A line that ends could not be read any further.",
                unit="s",
                limits=LIMITS["interactive"],
                width=12,
                next=Next("Do pipelines keep their promises?", LATENCY),
            ),
            Series("{{model_class}}", once("headway_lag_seconds", "model_class", f'lane="interactive", {CHOSEN}')),
        ),
        trend(
            About(
                title="Seconds behind, standard and batch",
                description="Batch may wait: it is there to fill what the others leave free.",
                unit="s",
                limits=LIMITS["standard"],
                width=12,
                next=Next("Is there room in the fleet?", FLEET, carry="model_class"),
            ),
            Series(
                "{{model_class}} {{lane}}",
                once("headway_lag_seconds", "model_class, lane", f'lane!="interactive", {CHOSEN}'),
            ),
        ),
        trend(
            About(
                title="Tasks not done",
                description="Waiting or in a slot. Stacked: the whole is the backlog of the plane.",
                unit="none",
                width=12,
                next=Next("Is there room in the fleet?", FLEET, carry="model_class"),
            ),
            Series(
                "{{model_class}} {{lane}}",
                f"sum by (model_class, lane) ({once('headway_lag_tasks', QUEUE, CHOSEN)})",
            ),
            stacked=True,
        ),
        trend(
            About(
                title="Requests in, runs out",
                description="While more come in than go out, something gets further behind.",
                unit="reqps",
                width=12,
                next=Next("Which pipeline?", LATENCY),
            ),
            Series("admitted", per_second("headway_requests_total", window=FINE)),
            Series("answered", per_second("headway_responses_total", window=FINE)),
            Series("refused", per_second("headway_requests_shed_total", window=FINE)),
        ),
    ]


def _reasons() -> list[Panel]:
    busy, slots = (f"sum by (model_class) ({name}{{{CHOSEN}}})" for name in ("headway_slots_busy", "headway_slots"))
    return [
        trend(
            About(
                title="Slots at work",
                description="At 100 % a class does what it can: it needs more workers, or less work. Behind and not"
                " at work: its tasks wait for something else.",
                unit="percentunit",
                limits=SHARE_OF_SLOTS,
                width=8,
                next=Next("How many workers does it have?", FLEET, carry="model_class"),
            ),
            Series("{{model_class}}", ratio(busy, slots)),
        ),
        trend(
            About(
                title="Time of a task in the engine",
                description="Mean. When it rises with the load, the engine is the bottleneck.",
                unit="s",
                width=8,
                next=Next("Which step of which pipeline?", LATENCY),
            ),
            Series("{{model_class}}", mean("headway_task_service_seconds", CHOSEN, FINE, "model_class")),
        ),
        trend(
            About(
                title="Workers on their way",
                description="Starting or draining: the backlog is about to shrink, or has just lost its workers.",
                unit="none",
                width=8,
                next=Next("How long do starts take?", COLD_STARTS, carry="model_class"),
            ),
            Series(
                "{{model_class}} {{state}}",
                f"sum by (model_class, state) ({once('headway_replicas', REPLICA, ON_THEIR_WAY)})",
            ),
        ),
    ]


def _coordination() -> list[Panel]:
    return [
        trend(
            About(
                title="Records behind, by group",
                description="Of every consumer group of the plane. Orchestrator or aggregator behind: requests wait"
                " although no model class does.",
                unit="none",
                width=8,
                next=Next("Is that service there?", FLEET),
            ),
            Series("{{consumergroup}}", f"sum by (consumergroup) ({once('kafka_consumergroup_lag', PARTITION)})"),
        ),
        trend(
            About(
                title="Oldest unfinished record",
                description="Age of the oldest record that a service has not committed. Orchestrator and aggregator"
                " should be near 0; workers have a backlog when a lane has one.",
                unit="s",
                limits=Limits(10, 60),
                width=8,
                next=Next("Is that service well?", FLEET),
            ),
            Series("{{service}}", "max by (service) (headway_watermark_age_seconds)"),
        ),
        trend(
            About(
                title="Open runs",
                description="Admitted and not answered. Above the limit of the orchestrator requests are refused.",
                unit="none",
                width=8,
                next=Next("How long do runs take?", LATENCY),
            ),
            Series("open", "sum(headway_open_runs)"),
        ),
    ]
