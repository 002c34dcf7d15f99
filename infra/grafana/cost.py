"""`headway-cost`: what it costs, who spends it, and what is paid for nothing."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from infra.grafana.board import COLD_STARTS, COST, FLEET, LATENCY, PIPELINE, Question, board, chosen
from infra.grafana.panels import IDLE, About, Column, Limits, Next, Panel, Series, stat, table, trend
from infra.grafana.promql import FINE, or_zero, per_second, ratio

CHOSEN = chosen(PIPELINE)
SPENT = "headway_cost_usd_total"
OF_WORK = f'kind="busy", {CHOSEN}'
DOLLARS = "currencyUSD"
A_RUNS_DECIMALS = 6
"""Small models cost micro-dollars."""
BUDGET = Limits(0.8, 1)
PER_HOUR = "3600 *"


def dashboard() -> Dashboard:
    """Cost by pipeline and model class."""
    return board(
        COST,
        "Cost",
        "What runs cost by pipeline and model class, against the budget, and what idle replicas cost.",
        PIPELINE,
        [
            Question("What does it cost?", [*_answers(), _pipelines()]),
            Question("Who spends it?", _spenders()),
            Question("What for?", _reasons()),
        ],
    )


def _answers() -> list[Panel]:
    return [
        stat(
            About(
                title="Now, per hour",
                description="The pace of the last five minutes, work and idle replicas, of the whole plane.",
                unit=DOLLARS,
                decimals=4,
                next=Next("Who spends it?", COST),
            ),
            Series("", f"{PER_HOUR} {per_second(SPENT)}"),
        ),
        stat(
            About(
                title="Spent in 24 h",
                description="Of the whole plane. Less than 24 hours of data: what was spent in those.",
                unit=DOLLARS,
                decimals=2,
                next=Next("Who spends it?", COST),
            ),
            Series("", f"sum(increase({SPENT}[1d]))"),
        ),
        stat(
            About(
                title="Of the day's budget",
                description="Spent in 24 hours, as a share of headway:budget_usd:per_day. The alert HeadwayBudgetBurn"
                " speaks when it is used up, and when an hour's pace would use twice of it.",
                unit="percentunit",
                limits=BUDGET,
                next=Next("Who spends it?", COST),
            ),
            Series("", ratio(f"sum(increase({SPENT}[1d]))", "headway:budget_usd:per_day", "on ()")),
        ),
        stat(
            About(
                title="A run, 1 h",
                description="Cost of work by number of runs, over an hour. Idle replicas are not in it.",
                unit=DOLLARS,
                no_value=IDLE,
                decimals=A_RUNS_DECIMALS,
                next=Next("Which pipeline is dear?", COST),
            ),
            Series("", _of_a_run("1h")),
        ),
        stat(
            About(
                title="Paid for waiting, 1 h",
                description="Share of the cost that went to replicas with nothing to do.",
                unit="percentunit",
                limits=Limits(0.5, 0.8),
                no_value=IDLE,
                next=Next("What could sleep?", COLD_STARTS),
            ),
            Series("", ratio(or_zero(per_second(SPENT, 'kind="idle"', "1h")), per_second(SPENT, window="1h"))),
        ),
        stat(
            About(
                title="Prompt tokens from a cache, 1 h",
                description="Share of input tokens that an engine had in its prefix cache.",
                unit="percentunit",
                no_value="no tokens",
                next=Next("How long do engines take?", LATENCY),
            ),
            Series("", ratio(or_zero(_tokens("cached", "1h")), _tokens("input", "1h"))),
        ),
    ]


def _of_a_run(window: str, by: str = "") -> str:
    runs = per_second("headway_run_seconds_count", CHOSEN, window, by)
    return ratio(per_second(SPENT, OF_WORK, window, by), runs)


def _tokens(kind: str, window: str, by: str = "") -> str:
    return per_second("headway_tokens_total", f'kind="{kind}", {CHOSEN}', window, by)


def _tokens_of_a_run(kind: str) -> str:
    return ratio(_tokens(kind, "1h", "pipeline"), per_second("headway_run_seconds_count", CHOSEN, "1h", "pipeline"))


def _pipelines() -> Panel:
    hourly = f"{PER_HOUR} {per_second(SPENT, OF_WORK, '1h', 'pipeline')}"
    return table(
        About(
            title="Pipelines",
            description="Cost of work, by pipeline, over an hour.",
            unit=DOLLARS,
            width=24,
            no_value="–",
            labels={"pipeline": "Pipeline"},
            next=Next("Which of its steps takes the time?", LATENCY, carry="pipeline"),
        ),
        Column("Per hour", hourly, DOLLARS, decimals=4),
        Column("A run", _of_a_run("1h", "pipeline"), DOLLARS, decimals=A_RUNS_DECIMALS),
        Column("Spent in 24 h", f"sum by (pipeline) (increase({SPENT}{{{OF_WORK}}}[1d]))", DOLLARS, decimals=4),
        Column("Input tokens of a run", _tokens_of_a_run("input"), "none", decimals=0),
        Column("Output tokens of a run", _tokens_of_a_run("output"), "none", decimals=0),
        sort_by="Per hour",
    )


def _spenders() -> list[Panel]:
    def hourly(by: str, where: str) -> str:
        return f"{PER_HOUR} {per_second(SPENT, where, FINE, by)}"

    return [
        trend(
            About(
                title="Per hour, by pipeline",
                description="Cost of work.",
                unit=DOLLARS,
                width=12,
                next=Next("Did it also become slower?", LATENCY, carry="pipeline"),
            ),
            Series("{{pipeline}}", hourly("pipeline", OF_WORK)),
            stacked=True,
        ),
        trend(
            About(
                title="Per hour, by model class",
                description="Busy: work. Idle: replicas that waited for some.",
                unit=DOLLARS,
                width=12,
                next=Next("How busy is this class?", FLEET, carry="model_class"),
            ),
            Series("{{model_class}} {{kind}}", hourly("model_class, kind", "")),
            stacked=True,
        ),
    ]


def _reasons() -> list[Panel]:
    return [
        trend(
            About(
                title="Tokens by kind",
                description="Input: whole prompts. Of these, cached: what an engine had; resent: by retries.",
                unit="none",
                width=12,
                next=Next("Which step is it?", LATENCY),
            ),
            Series("{{kind}}", per_second("headway_tokens_total", CHOSEN, FINE, "kind")),
        ),
        trend(
            About(
                title="Cost of a run",
                description="By pipeline. It rises with longer prompts, retries and dearer backends.",
                unit=DOLLARS,
                width=12,
                no_value=IDLE,
                decimals=A_RUNS_DECIMALS,
                next=Next("Which step is it?", LATENCY, carry="pipeline"),
            ),
            Series("{{pipeline}}", _of_a_run(FINE, "pipeline")),
        ),
    ]
