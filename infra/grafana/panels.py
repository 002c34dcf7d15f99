"""The three shapes of a panel. Each has a unit, says what it shows, and leads to the next question.

`stat`: one answer. `table`: one row for each thing. `trend`: since when. What has no value says so in words: a
number that nobody knows is never drawn as 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Protocol, Self, TypeVar

from grafana_foundation_sdk.builders.common import (
    GraphThresholdsStyleConfig,
    ReduceDataOptions,
    StackingConfig,
    TableSortByFieldState,
    VizLegendOptions,
    VizTooltipOptions,
)
from grafana_foundation_sdk.builders.dashboard import DashboardLink, ThresholdsConfig
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.table import Panel as Table
from grafana_foundation_sdk.builders.timeseries import Panel as TimeSeries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    DataSourceRef,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import DashboardLink as DashboardLinkModel
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DashboardSpecialValueMapOptions,
    DataTransformerConfig,
    DynamicConfigValue,
    SpecialValueMap,
    SpecialValueMatch,
    Threshold,
    ThresholdsMode,
    ValueMapping,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.dashboard import ThresholdsConfig as ThresholdsConfigModel
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
FULL_WIDTH = 24
UNREADABLE = "unreadable"
"""Shown for what should be known, and is not: whoever reports it is away."""
IDLE = "nothing ran"
"""Shown for a time or a share of things of which there were none."""

GREEN, YELLOW, RED, GREY = "green", "yellow", "red", "text"


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on a value is a warning, and from where on it hurts. `falling`: the other way round."""

    warning: float | None = None
    bad: float | None = None
    falling: bool = False

    def steps(self) -> list[Threshold]:
        """Grafana's: rising, the first without a value."""
        named = [(value, color) for value, color in ((self.warning, YELLOW), (self.bad, RED)) if value is not None]
        if not named:
            return [Threshold(None, GREY)]
        if not self.falling:
            return [Threshold(None, GREEN), *(Threshold(value, color) for value, color in named)]
        colors = [color for _, color in reversed(named)]
        values = [value for value, _ in reversed(named)]
        return [Threshold(None, colors[0]), *map(Threshold, values, [*colors[1:], GREEN])]


PLAIN = Limits()
"""A value that is neither good nor bad."""
NONE_EXPECTED = Limits(bad=1)
SHARE_OF_SLOTS = Limits(0.8, 0.95)


@dataclass(frozen=True, slots=True)
class Next:
    """The question that follows, and the dashboard which answers it; `carry` keeps what a person clicked on."""

    question: str
    uid: str
    carry: str | None = None
    """A label that is also a variable of that dashboard."""

    def of_panel(self) -> DashboardLink:
        """From its corner."""
        return _link(self.question, self.uid, "")

    def of_series(self) -> DashboardLink:
        """From a number or a line: to what its label names."""
        return _link(self.question, self.uid, f"&var-{self.carry}=${{__field.labels.{self.carry}}}")

    def of_row(self, column: str) -> DashboardLink:
        """From a cell: to what its row names in that column."""
        return _link(self.question, self.uid, f'&var-{self.carry}=${{__data.fields["{column}"]}}')


@dataclass(frozen=True, slots=True)
class Column:
    """One number of every row of a table."""

    name: str
    expr: str
    unit: str
    limits: Limits = PLAIN
    decimals: int | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """The lines of one query, and how each is called."""

    legend: str
    expr: str


@dataclass(frozen=True, slots=True)
class About:
    """What every panel says of itself."""

    title: str
    description: str
    unit: str
    next: Next
    limits: Limits = PLAIN
    width: int = 4
    no_value: str = UNREADABLE
    decimals: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of a table: its first columns by label."""


Panel = Stat | Table | TimeSeries


class _Builder(Protocol):
    """What the builders of all shapes have in common."""

    def title(self, title: str) -> Self: ...
    def description(self, description: str) -> Self: ...
    def datasource(self, datasource: DataSourceRef) -> Self: ...
    def span(self, w: int) -> Self: ...
    def height(self, h: int) -> Self: ...
    def unit(self, unit: str) -> Self: ...
    def no_value(self, no_value: str) -> Self: ...
    def mappings(self, mappings: list[ValueMapping]) -> Self: ...
    def decimals(self, decimals: float) -> Self: ...
    def thresholds(self, thresholds: Builder[ThresholdsConfigModel]) -> Self: ...
    def links(self, links: list[Builder[DashboardLinkModel]]) -> Self: ...


P = TypeVar("P", bound=_Builder)
S = TypeVar("S")


def stat(about: About, *series: Series) -> Stat:
    """One answer, as large as the panel: a number, or one for each line of the query, under its name."""
    panel = _described(Stat(), about, height=5)
    panel = panel.color_mode(BigValueColorMode.BACKGROUND).graph_mode(BigValueGraphMode.NONE)
    panel = panel.reduce_options(ReduceDataOptions().calcs(["lastNotNull"]))
    named = any(one.legend for one in series)
    panel = panel.text_mode(BigValueTextMode.VALUE_AND_NAME if named else BigValueTextMode.VALUE)
    if about.next.carry:
        panel = panel.data_links([about.next.of_series()])
    return panel.targets([_instant(one.expr, name).legend_format(one.legend) for one, name in _lettered(series)])


def trend(about: About, *series: Series, stacked: bool = False) -> TimeSeries:
    """Since when: lines over time, with what counts as too much drawn across."""
    panel = _described(TimeSeries(), about, height=8)
    panel = panel.min(0).fill_opacity(25 if stacked else 8).line_width(1)
    panel = panel.stacking(StackingConfig().mode(StackingMode.NORMAL if stacked else StackingMode.NONE))
    panel = panel.tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    legend = VizLegendOptions().display_mode(LegendDisplayMode.TABLE).placement(LegendPlacement.RIGHT)
    panel = panel.legend(legend.show_legend(True).calcs(["lastNotNull", "max"]).sort_by("Last *").sort_desc(True))
    if about.limits is not PLAIN:
        panel = panel.thresholds_style(GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED))
    if about.next.carry:
        panel = panel.data_links([about.next.of_series()])
    return panel.targets([_over_time(one, name) for one, name in _lettered(series)])


def table(about: About, *columns: Column, sort_by: str) -> Table:
    """One row for each thing, the worst on top. All columns must have the labels of `about`, and no others."""
    panel = _described(Table(), about, height=9)
    panel = panel.targets([_instant(column.expr, name, PromQueryFormat.TABLE) for column, name in _lettered(columns)])
    panel = panel.transformations([DataTransformerConfig("merge", options={}), _organized(about.labels, columns)])
    for column in columns:
        panel = panel.override_by_name(column.name, _cells(column))
    if about.next.carry:
        shown = about.labels[about.next.carry]
        panel = panel.override_by_name(shown, [DynamicConfigValue("links", [about.next.of_row(shown).build()])])
    return panel.sort_by([TableSortByFieldState().display_name(sort_by).desc(True)])


def _described(panel: P, about: About, height: int) -> P:
    thresholds = ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(about.limits.steps())
    panel = panel.title(about.title).description(about.description).datasource(DATASOURCE)
    panel = panel.span(about.width).height(height).unit(about.unit).no_value(about.no_value).thresholds(thresholds)
    panel = panel.mappings([_told_in_words(about.no_value)])
    if about.decimals is not None:
        panel = panel.decimals(about.decimals)
    return panel.links([about.next.of_panel()])


def _told_in_words(no_value: str) -> SpecialValueMap:
    """Without a colour of its own, no value would have that of a good one."""
    color = RED if no_value == UNREADABLE else GREY
    return SpecialValueMap(
        DashboardSpecialValueMapOptions(SpecialValueMatch.NULL_AND_NAN, ValueMappingResult(no_value, color))
    )


def _lettered(things: Sequence[S]) -> "zip[tuple[S, str]]":
    return zip(things, ascii_uppercase, strict=False)


def _instant(expr: str, ref_id: str, shape: PromQueryFormat = PromQueryFormat.TIME_SERIES) -> Dataquery:
    return Dataquery().expr(expr).ref_id(ref_id).datasource(DATASOURCE).instant().format(shape)


def _over_time(series: Series, ref_id: str) -> Dataquery:
    return Dataquery().expr(series.expr).ref_id(ref_id).datasource(DATASOURCE).range().legend_format(series.legend)


def _organized(labels: Mapping[str, str], columns: Sequence[Column]) -> DataTransformerConfig:
    """Labels first, then the numbers in the order they are written in, without the time of the query."""
    numbers = {f"Value #{name}": column.name for column, name in _lettered(columns)}
    order = {name: index for index, name in enumerate([*labels, *numbers])}
    options = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": {**labels, **numbers}}
    return DataTransformerConfig("organize", options=options)


def _cells(column: Column) -> list[DynamicConfigValue]:
    properties = {
        "unit": column.unit,
        "decimals": column.decimals,
        "thresholds": ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(column.limits.steps()).build(),
        "custom.cellOptions": {"type": "auto" if column.limits is PLAIN else "color-background"},
    }
    return [DynamicConfigValue(name, value) for name, value in properties.items() if value is not None]


def _link(title: str, uid: str, more: str) -> DashboardLink:
    link = DashboardLink(title).type(DashboardLinkType.LINK).url(f"/d/{uid}?${{__url_time_range}}{more}")
    return link.target_blank(False)
