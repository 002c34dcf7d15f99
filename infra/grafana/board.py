"""A dashboard: rows of panels, each row one question, the answer in the first."""

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders.dashboard import (
    AnnotationQuery,
    Dashboard,
    DashboardLink,
    DatasourceVariable,
    QueryVariable,
    Row,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from infra.grafana.panels import DATASOURCE, Panel

TAG = "headway"
LAG, LATENCY, COST = "headway-lag", "headway-latency", "headway-cost"
COLD_STARTS, FLEET = "headway-cold-starts", "headway-fleet"

IN_SIGHT = ""
"""The SDK would hide links in a menu."""


@dataclass(frozen=True, slots=True)
class Question:
    """A row."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Choice:
    """A label people choose values of at the top; all of them at first."""

    label: str
    title: str
    metric: str
    """Has every value."""


MODEL_CLASS = Choice("model_class", "Model class", "headway_slots")
PIPELINE = Choice("pipeline", "Pipeline", "headway_run_seconds_count")


def board(uid: str, title: str, description: str, choice: Choice, questions: Sequence[Question]) -> Dashboard:
    """The last hour, renewed every 10 s, with links to all the others and firing alerts marked in red."""
    made = Dashboard(f"Headway / {title}").uid(uid).description(description).tags([TAG]).readonly()
    made = made.time("now-1h", "now").refresh("10s").timezone("browser").tooltip(DashboardCursorSync.CROSSHAIR)
    others = (
        DashboardLink("Headway").type(DashboardLinkType.DASHBOARDS).tags([TAG]).keep_time(True).include_vars(True)
    )
    made = made.link(others.as_dropdown(False).placement(IN_SIGHT)).annotation(_firing())
    made = made.with_variable(DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    made = made.with_variable(_variable(choice))
    numbers = iter(range(1, 1_000))
    for question in questions:
        made = made.with_row(Row(question.title).id(next(numbers)))
        for panel in question.panels:
            made = made.with_panel(panel.id(next(numbers)))
    return made


def chosen(choice: Choice) -> str:
    """The matcher of what people chose."""
    return f'{choice.label}=~"${choice.label}"'


def _variable(choice: Choice) -> QueryVariable:
    query = f"label_values({choice.metric}, {choice.label})"
    variable = QueryVariable(choice.label).label(choice.title).datasource(DATASOURCE)
    variable = variable.query({"query": query, "refId": choice.label}).definition(query)
    variable = variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
    everything = VariableOption(text="All", value="$__all")
    return variable.multi(True).include_all(True).all_value(".*").current(everything)


def _firing() -> AnnotationQuery:
    alerts = AnnotationQuery().name("Alerts").datasource(DATASOURCE).enable(True).icon_color("red")
    return (
        alerts.expr('ALERTS{alertname=~"Headway.*", alertstate="firing"}')
        .title_format("{{alertname}}")
        .placement(IN_SIGHT)
    )
