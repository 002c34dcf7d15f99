"""`headway-cold-starts`: what is asleep, what waking costs, and who waited for it."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from infra.grafana.board import COLD_STARTS, COST, FLEET, LAG, LATENCY, MODEL_CLASS, Question, board, chosen
from infra.grafana.panels import IDLE, About, Column, Limits, Next, Panel, Series, stat, table, trend
from infra.grafana.promql import FINE, increase, mean, once, per_second, quantile_so_far

CHOSEN = chosen(MODEL_CLASS)
STARTS = "headway_cold_start_seconds"
REPLICA = "model_class, backend, state"
WANTED = f"sum by (model_class) ({once('headway_desired_replicas', 'model_class, backend', CHOSEN)})"
TAKES = quantile_so_far(0.95, STARTS, CHOSEN, "model_class")
LONG_START = Limits(30, 120)


def dashboard() -> Dashboard:
    """Replicas by state, and the time their starts take."""
    return board(
        COLD_STARTS,
        "Cold starts",
        "Which model classes are asleep, how long a start takes, and whose runs waited for one.",
        MODEL_CLASS,
        [
            Question("What is asleep?", [*_answers(), _model_classes()]),
            Question("Since when?", _trends()),
            Question("Who waited?", _waits()),
        ],
    )


def _replicas(state: str, by: str = "") -> str:
    labels = f" by ({by})" if by else ""
    where = f'state="{state}", {CHOSEN}'
    return f"sum{labels} ({once('headway_replicas', REPLICA, where)})"


def _answers() -> list[Panel]:
    return [
        _in_state("warm", "Ready: a task starts at once.", Next("How busy are they?", FLEET)),
        _in_state("starting", "On their way: their tasks wait.", Next("Who waits for them?", LAG)),
        _in_state(
            "asleep", "Loaded or not, they cost little, and their next task waits.", Next("Is it worth it?", COST)
        ),
        stat(
            About(
                title="Classes with nothing warm",
                description="The next task of each of them waits for a start. Right for a class that may sleep.",
                unit="none",
                limits=Limits(warning=1),
                next=Next("Who waits for them?", LAG),
            ),
            Series(
                "",
                f"count({_replicas('warm', 'model_class')} == 0) or (0 * count(headway_replicas{{{CHOSEN}}}))",
            ),
        ),
        stat(
            About(
                title="A start takes, p95",
                description="From the engine's start to its first health: the slowest class of those that run.",
                unit="s",
                limits=LONG_START,
                no_value="no start",
                next=Next("Which pipelines met one?", LATENCY),
            ),
            Series("", f"max({TAKES})"),
        ),
        stat(
            About(
                title="Of a run's time, 1 h",
                description="Seconds that a run waited for a start on its critical path, on average.",
                unit="s",
                limits=Limits(0.1, 1),
                no_value=IDLE,
                next=Next("Which pipelines met one?", LATENCY),
            ),
            Series("", mean("headway_run_component_seconds", 'component="cold"', "1h")),
        ),
    ]


def _in_state(state: str, description: str, following: Next) -> Panel:
    about = About(title=state.capitalize(), description=description, unit="none", next=following)
    return stat(about, Series("", _replicas(state)))


def _model_classes() -> Panel:
    states = ("warm", "starting", "draining", "failed", "asleep")
    starts = increase(f"{STARTS}_count", CHOSEN, "1h", "model_class")
    return table(
        About(
            title="Model classes",
            description="Replicas by state, and their starts of the last hour.",
            unit="none",
            width=24,
            no_value="–",
            labels={"model_class": "Class"},
            next=Next("What is this class doing?", FLEET, carry="model_class"),
        ),
        Column("Wanted", WANTED, "none"),
        *(Column(state.capitalize(), _replicas(state, "model_class"), "none") for state in states),
        Column("Starts, 1 h", starts, "none", decimals=0),
        Column("A start takes, p95", TAKES, "s", LONG_START),
        sort_by="A start takes, p95",
    )


def _trends() -> list[Panel]:
    return [
        trend(
            About(
                title="Replicas by state",
                description="Of the chosen classes.",
                unit="none",
                width=12,
                next=Next("Is it what scaling wants?", FLEET),
            ),
            Series("{{state}}", f"sum by (state) ({once('headway_replicas', REPLICA, CHOSEN)})"),
            stacked=True,
        ),
        trend(
            About(
                title="Warm, by class",
                description="A line at 0 is a class whose next task waits for a start.",
                unit="none",
                width=12,
                next=Next("Who waits for it?", LAG, carry="model_class"),
            ),
            Series("{{model_class}}", _replicas("warm", "model_class")),
        ),
    ]


def _waits() -> list[Panel]:
    met = per_second("headway_step_seconds_total", f'component="cold", {CHOSEN}', FINE, "pipeline, step")
    return [
        trend(
            About(
                title="Starts in five minutes",
                description="By class, and by what it started from. Many: `min_replicas` or `cooldown` is too low.",
                unit="none",
                width=8,
                decimals=0,
                next=Next("How long was it idle?", COST),
            ),
            Series(
                "{{model_class}} from {{from}}",
                increase(f"{STARTS}_count", CHOSEN, "5m", "model_class, from"),
            ),
        ),
        trend(
            About(
                title="A start takes, p95, by class",
                description="From the engine's start to its first health, of the workers that run.",
                unit="s",
                limits=LONG_START,
                width=8,
                no_value="no start",
                next=Next("What did its runs feel?", LATENCY),
            ),
            Series("{{model_class}}", TAKES),
        ),
        trend(
            About(
                title="Steps that wait for a start",
                description="Seconds of waiting in each second, by step: 3 means that three tasks wait at any time.",
                unit="none",
                width=8,
                next=Next("What do runs feel of it?", LATENCY, carry="pipeline"),
            ),
            Series("{{pipeline}} / {{step}}", met),
        ),
    ]
