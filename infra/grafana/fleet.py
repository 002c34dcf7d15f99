"""`headway-fleet`: is everything there, is it well, and is there room."""

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
from infra.grafana.promql import FINE, once, or_zero, per_second, ratio

CHOSEN = chosen(MODEL_CLASS)
WANTED = once("headway_desired_replicas", "model_class, backend", CHOSEN)
WARM = once("headway_replicas", "model_class, backend", f'state="warm", {CHOSEN}')
SERVICES = ("orchestrator", "aggregator", "autoscaler", "host")
"""Scrape jobs of infra/prometheus/prometheus.yml."""
ONE_EXPECTED = Limits(bad=1, falling=True)


def dashboard() -> Dashboard:
    """Services, workers, breakers and dead letters."""
    return board(
        FLEET,
        "Fleet",
        "Which services and workers are there, how busy they are, and what is broken.",
        MODEL_CLASS,
        [
            Question("Is everything there, and well?", [*_answers(), _model_classes()]),
            Question("Is there room?", _room()),
            Question("What breaks?", _breaks()),
            Question("What do the processes take?", _processes()),
        ],
    )


def _answers() -> list[Panel]:
    return [
        stat(
            About(
                title="Services that answer",
                description="Processes that Prometheus reaches. 0: nobody does that work.",
                unit="none",
                limits=ONE_EXPECTED,
                width=8,
                next=Next("What waits for it?", LAG),
            ),
            *(Series(job, or_zero(f'sum(up{{job="{job}"}})')) for job in SERVICES),
        ),
        stat(
            About(
                title="Alerts",
                description="That fire now; docs/runbooks has a page for each.",
                unit="none",
                limits=NONE_EXPECTED,
                width=3,
                next=Next("What is behind?", LAG),
            ),
            Series("", 'count(ALERTS{alertname=~"Headway.*", alertstate="firing"}) or vector(0)'),
        ),
        stat(
            About(
                title="Breakers open",
                description="Workers whose engine fails or is slow: they take no tasks.",
                unit="none",
                limits=NONE_EXPECTED,
                width=3,
                next=Next("What do runs feel of it?", LATENCY),
            ),
            Series("", f'sum(headway_breaker_state{{state="open", {CHOSEN}}})'),
        ),
        stat(
            About(
                title="Slots at work",
                description="Of all workers of the chosen classes.",
                unit="percentunit",
                limits=SHARE_OF_SLOTS,
                width=3,
                next=Next("What waits?", LAG),
            ),
            Series("", ratio(f"sum(headway_slots_busy{{{CHOSEN}}})", f"sum(headway_slots{{{CHOSEN}}})")),
        ),
        stat(
            About(
                title="Dead letters, 1 h",
                description="Records that nobody can process. `headway dlq list` tells why.",
                unit="none",
                limits=NONE_EXPECTED,
                width=4,
                decimals=0,
                next=Next("Do runs fail?", LATENCY),
            ),
            Series("", "sum(increase(headway_dead_letters_total[1h]))"),
        ),
        stat(
            About(
                title="Worker restarts, 1 h",
                description="Workers that ended without being told to, and were started again by their host.",
                unit="none",
                limits=Limits(1, 5),
                width=3,
                decimals=0,
                next=Next("How long do starts take?", COLD_STARTS),
            ),
            Series("", f"sum(increase(headway_worker_restarts_total{{{CHOSEN}}}[1h]))"),
        ),
    ]


def _model_classes() -> Panel:
    by = "model_class, backend"
    busy, slots = (f"sum by ({by}) ({name}{{{CHOSEN}}})" for name in ("headway_slots_busy", "headway_slots"))
    ended = per_second("headway_tasks_total", CHOSEN, by=by)
    failed = per_second("headway_tasks_total", f'outcome=~"failed|expired|undecodable", {CHOSEN}', by=by)
    return table(
        About(
            title="Model classes",
            description="Workers that are there, and what they do, by backend.",
            unit="none",
            width=24,
            no_value="–",
            labels={"model_class": "Class", "backend": "Backend"},
            next=Next("Is it behind?", LAG, carry="model_class"),
        ),
        Column("Workers", f"count by ({by}) (headway_slots{{{CHOSEN}}})", "none"),
        Column("Slots", slots, "none"),
        Column("At work", ratio(busy, slots), "percentunit", SHARE_OF_SLOTS, decimals=0),
        Column(
            "Breakers open", f'sum by ({by}) (headway_breaker_state{{state="open", {CHOSEN}}})', "none", NONE_EXPECTED
        ),
        Column("Tasks per second", ended, "ops"),
        Column("Failed", ratio(failed, ended), "percentunit", Limits(0.01, 0.2), decimals=1),
        sort_by="At work",
    )


def _room() -> list[Panel]:
    busy, slots = (f"sum by (model_class) ({name}{{{CHOSEN}}})" for name in ("headway_slots_busy", "headway_slots"))
    return [
        trend(
            About(
                title="Slots at work, by class",
                description="At 100 % a class does what it can.",
                unit="percentunit",
                limits=SHARE_OF_SLOTS,
                width=12,
                next=Next("What waits?", LAG, carry="model_class"),
            ),
            Series("{{model_class}}", ratio(busy, slots)),
        ),
        trend(
            About(
                title="Replicas: wanted and warm",
                description="A gap that stays: starts fail, or no host has room.",
                unit="none",
                width=12,
                next=Next("How long do starts take?", COLD_STARTS, carry="model_class"),
            ),
            Series("{{model_class}} wanted", f"sum by (model_class) ({WANTED})"),
            Series("{{model_class}} warm", f"sum by (model_class) ({WARM})"),
        ),
    ]


def _breaks() -> list[Panel]:
    return [
        trend(
            About(
                title="Tasks by outcome",
                description="Dropped: the run was over. Repeated: done before, delivered again. Expired: too late.",
                unit="ops",
                width=8,
                next=Next("Which pipelines fail?", LATENCY),
            ),
            Series("{{outcome}}", per_second("headway_tasks_total", CHOSEN, FINE, "outcome")),
            stacked=True,
        ),
        trend(
            About(
                title="Breakers open, by backend",
                description="Workers by backend. Docs: runbooks/HeadwayBreakerOpen.",
                unit="none",
                limits=NONE_EXPECTED,
                width=8,
                next=Next("What do runs feel of it?", LATENCY),
            ),
            Series(
                "{{model_class}} {{backend}}",
                f'sum by (model_class, backend) (headway_breaker_state{{state="open", {CHOSEN}}})',
            ),
        ),
        trend(
            About(
                title="Dead letters in five minutes",
                description="By topic and reason. Docs: runbooks/HeadwayDeadLetters.",
                unit="none",
                limits=NONE_EXPECTED,
                width=8,
                decimals=0,
                next=Next("Do runs fail?", LATENCY),
            ),
            Series("{{topic}}: {{reason}}", "sum by (topic, reason) (increase(headway_dead_letters_total[5m])) > 0"),
            Series("all", "sum(increase(headway_dead_letters_total[5m]))"),
        ),
    ]


def _processes() -> list[Panel]:
    return [
        trend(
            About(
                title="Memory",
                description="Resident, by service; a host with all its workers.",
                unit="bytes",
                width=8,
                next=Next("How many runs are open?", LAG),
            ),
            Series("{{job}}", "sum by (job) (process_resident_memory_bytes)"),
            stacked=True,
        ),
        trend(
            About(
                title="Cores at work",
                description="By service; a host with all its workers.",
                unit="none",
                width=8,
                next=Next("What waits for them?", LAG),
            ),
            Series("{{job}}", "sum by (job) (rate(process_cpu_seconds_total[$__rate_interval]))"),
            stacked=True,
        ),
        trend(
            About(
                title="Worker restarts in five minutes",
                description="By class. A task that kills its workers is put aside after the second.",
                unit="none",
                limits=Limits(1, 5),
                width=8,
                decimals=0,
                next=Next("How long do starts take?", COLD_STARTS, carry="model_class"),
            ),
            Series(
                "{{model_class}}",
                f"sum by (model_class) (increase(headway_worker_restarts_total{{{CHOSEN}}}[5m]))",
            ),
        ),
    ]
