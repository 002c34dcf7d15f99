"""`headway-latency`: is it quick enough, and which step makes it slow."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from infra.grafana.board import COLD_STARTS, COST, FLEET, LAG, LATENCY, PIPELINE, Question, board, chosen
from infra.grafana.panels import IDLE, About, Column, Limits, Next, Panel, Series, stat, table, trend
from infra.grafana.promql import FINE, mean, or_zero, per_second, quantile, ratio, worst

CHOSEN = chosen(PIPELINE)
INTERACTIVE_QUEUE = Limits(0.5, 2)
"""Seconds a task of the interactive lane should wait at most."""
BURN = Limits(1, 14.4)
"""How fast the error budget goes: 1 uses it up exactly; at 14.4 the alert HeadwaySLOBurn speaks within the hour."""
IN_TIME = Limits(0.99, 0.95, falling=True)
RUNS = "headway_run_seconds_count"
OF_RUNS = "on (pipeline) group_left ()"


def dashboard() -> Dashboard:
    """Latency by pipeline and step."""
    return board(
        LATENCY,
        "Latency",
        "Whether pipelines keep their promises, where the time of a run goes, and which step makes it slow.",
        PIPELINE,
        [
            Question("Is it quick enough?", [*_answers(), _pipelines()]),
            Question("Which step makes it slow?", _steps()),
            Question("Since when?", _trends()),
            Question("Which model class is it?", _classes()),
        ],
    )


def _answers() -> list[Panel]:
    return [
        stat(
            About(
                title="An interactive task waits, p95",
                description="From its record to the engine, over five minutes: what other work does to people.",
                unit="s",
                limits=INTERACTIVE_QUEUE,
                no_value=IDLE,
                next=Next("Which class is behind?", LAG),
            ),
            Series("", quantile(0.95, "headway_task_queue_seconds", 'lane="interactive"')),
        ),
        stat(
            About(
                title="Worst kept promise, 1 h",
                description="How many times too fast the pipeline uses up its error budget (the share of runs that"
                " its `slo` lets be late). 1 is just what was promised.",
                unit="suffix: ×",
                limits=BURN,
                width=5,
                decimals=1,
                no_value=IDLE,
                next=Next("Which step makes it slow?", LATENCY, carry="pipeline"),
            ),
            Series("{{pipeline}}", worst(f'headway:slo_burn{{window="1h", {CHOSEN}}}')),
        ),
        stat(
            About(
                title="Slowest step",
                description="The step in which runs spent the most time over five minutes, retries included.",
                unit="s",
                width=5,
                no_value=IDLE,
                next=Next("Which part of it?", LATENCY, carry="pipeline"),
            ),
            Series("{{pipeline}} / {{step}}", worst(_of_a_run("pipeline, step"))),
        ),
        stat(
            About(
                title="Failed or expired, 5 min",
                description="Share of runs that ended without an answer; partial and blocked ones have one.",
                unit="percentunit",
                limits=Limits(0.01, 0.05),
                width=5,
                no_value=IDLE,
                next=Next("Is a breaker open?", FLEET),
            ),
            Series(
                "", ratio(or_zero(per_second(RUNS, f'status=~"failed|expired", {CHOSEN}')), per_second(RUNS, CHOSEN))
            ),
        ),
        stat(
            About(
                title="The plane's own share, 5 min",
                description="Coordination: time of runs on their critical path outside queues, starts and engines.",
                unit="percentunit",
                limits=Limits(0.2, 0.5),
                width=5,
                no_value=IDLE,
                next=Next("Is the plane itself behind?", LAG),
            ),
            Series(
                "",
                ratio(
                    per_second("headway_run_component_seconds_sum", f'component="coordination", {CHOSEN}'),
                    per_second("headway_run_component_seconds_sum", CHOSEN),
                ),
            ),
        ),
    ]


def _of_a_run(by: str, where: str = "", window: str = "5m") -> str:
    """Seconds that one run spends in steps, by label (`pipeline` first)."""
    matchers = f"{where}, {CHOSEN}" if where else CHOSEN
    seconds = per_second("headway_step_seconds_total", matchers, window, by)
    return ratio(seconds, per_second(RUNS, CHOSEN, window, "pipeline"), OF_RUNS)


def _pipelines() -> Panel:
    end_to_end = {
        f"p{int(share * 100)}": quantile(share, "headway_run_seconds", CHOSEN, by="pipeline")
        for share in (0.5, 0.95, 0.99)
    }
    return table(
        About(
            title="Pipelines",
            description="From the request's record to the outcome's, over five minutes; in time: over one hour, of"
            " runs that were not cancelled.",
            unit="none",
            width=24,
            no_value="–",
            labels={"pipeline": "Pipeline"},
            next=Next("Which step makes it slow?", LATENCY, carry="pipeline"),
        ),
        Column("Runs per second", per_second(RUNS, CHOSEN, by="pipeline"), "reqps"),
        *(Column(name, expr, "s") for name, expr in end_to_end.items()),
        Column("Promised", f"max by (pipeline) (headway_slo_latency_seconds{{{CHOSEN}}})", "s"),
        Column(
            "In time, 1 h",
            f'1 - max by (pipeline) (headway:slo_error_ratio{{window="1h", {CHOSEN}}})',
            "percentunit",
            IN_TIME,
            decimals=2,
        ),
        Column("Objective", f"max by (pipeline) (headway_slo_objective{{{CHOSEN}}})", "percentunit", decimals=2),
        Column("Burn, 1 h", f'max by (pipeline) (headway:slo_burn{{window="1h", {CHOSEN}}})', "suffix: ×", BURN, 1),
        sort_by="Burn, 1 h",
    )


def _steps() -> list[Panel]:
    step = "pipeline, step, model_class"
    parts = (("Queue", "queue"), ("Start", "cold"), ("Engine", "service"))
    return [
        table(
            About(
                title="Seconds of a run, by step",
                description="What one run spends in each step on average, retries included. Steps may run side by"
                " side: they do not sum to the run. Queue: more workers help. Start: keep one warm. Engine: a faster"
                " model, or smaller input.",
                unit="s",
                width=14,
                no_value="–",
                labels={"pipeline": "Pipeline", "step": "Step", "model_class": "Class"},
                next=Next("Is its class behind?", LAG, carry="model_class"),
            ),
            Column("Together", _of_a_run(step), "s"),
            *(Column(name, _of_a_run(step, f'component="{part}"'), "s") for name, part in parts),
            sort_by="Together",
        ),
        trend(
            About(
                title="Where a run's time goes",
                description="Along its critical path, on average. The four sum to the time from request to outcome.",
                unit="s",
                width=10,
                no_value=IDLE,
                next=Next("What does it cost?", COST),
            ),
            Series(
                "{{component}}",
                ratio(
                    per_second("headway_run_component_seconds_sum", CHOSEN, FINE, "component"),
                    per_second(RUNS, CHOSEN, FINE),
                    "on () group_left ()",
                ),
            ),
            stacked=True,
        ),
    ]


def _trends() -> list[Panel]:
    shares = (0.5, 0.95, 0.99)
    return [
        trend(
            About(
                title="Request to outcome",
                description="All chosen pipelines together.",
                unit="s",
                width=8,
                no_value=IDLE,
                next=Next("Which step makes it slow?", LATENCY),
            ),
            *(Series(f"p{int(s * 100)}", quantile(s, "headway_run_seconds", CHOSEN, FINE)) for s in shares),
        ),
        trend(
            About(
                title="Burn of the error budget, 1 h",
                description="1 uses it up exactly. The alert speaks at 14.4 over an hour, and at 6 over six.",
                unit="suffix: ×",
                limits=BURN,
                width=8,
                no_value=IDLE,
                next=Next("Which step makes it slow?", LATENCY, carry="pipeline"),
            ),
            Series("{{pipeline}}", f'headway:slo_burn{{window="1h", {CHOSEN}}}'),
        ),
        trend(
            About(
                title="Runs by outcome",
                description="Partial: an answer without a step that may be missing. Blocked: a gate said no.",
                unit="reqps",
                width=8,
                next=Next("Is a breaker open?", FLEET),
            ),
            Series("{{status}}", per_second("headway_responses_total", CHOSEN, FINE, "status")),
            stacked=True,
        ),
    ]


def _classes() -> list[Panel]:
    return [
        trend(
            About(
                title="A task waits, p95",
                description="From its record to the engine, by class and lane.",
                unit="s",
                limits=INTERACTIVE_QUEUE,
                width=6,
                no_value=IDLE,
                next=Next("How far is it behind?", LAG, carry="model_class"),
            ),
            Series(
                "{{model_class}} {{lane}}",
                quantile(0.95, "headway_task_queue_seconds", window=FINE, by="model_class, lane"),
            ),
        ),
        trend(
            About(
                title="A task is in the engine, p95",
                description="By class and backend.",
                unit="s",
                width=6,
                no_value=IDLE,
                next=Next("Are its workers busy?", FLEET, carry="model_class"),
            ),
            Series(
                "{{model_class}} {{backend}}",
                quantile(0.95, "headway_task_service_seconds", window=FINE, by="model_class, backend"),
            ),
        ),
        trend(
            About(
                title="Its first token comes, p95",
                description="From the hand-over to the engine, by class and backend; of engines that stream.",
                unit="s",
                width=6,
                no_value=IDLE,
                next=Next("Are its workers busy?", FLEET, carry="model_class"),
            ),
            Series(
                "{{model_class}} {{backend}}",
                quantile(0.95, "headway_time_to_first_token_seconds", window=FINE, by="model_class, backend"),
            ),
        ),
        trend(
            About(
                title="A run waits for a start",
                description="Seconds of its critical path in which a worker was not ready yet, on average.",
                unit="s",
                width=6,
                no_value=IDLE,
                next=Next("What is asleep?", COLD_STARTS),
            ),
            Series(
                "{{pipeline}}", mean("headway_run_component_seconds", f'component="cold", {CHOSEN}', FINE, "pipeline")
            ),
        ),
    ]
