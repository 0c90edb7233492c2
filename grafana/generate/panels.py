# SPDX-License-Identifier: Apache-2.0
"""A panel as a row of a table, and the foundation SDK's panel that it becomes. No metric here, no layout.

Three things are told apart: a value, "no data" (nothing answers, or it cannot be known), and a zero,
which is only ever drawn where zero was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import (
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

UNITS = frozenset({"s", "reqps", "cps", "ops", "percentunit", "short", "none", "bytes"})
NO_DATA = "no data"
DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
EXPLORER_LINK = "${explorer}/?endpoint=${__field.labels.endpoint}&from=${__from}&to=${__to}"

GREEN, YELLOW, ORANGE, RED, BLUE, GREY = "green", "yellow", "orange", "red", "blue", "#8e8e8e"


@dataclass(frozen=True, slots=True)
class Target:
    """One query and the name of its series."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class State:
    """What a number means in a state panel."""

    value: int
    text: str
    color: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of a dashboard. `kind` is a key of `BUILDERS`; `limits` are (from this value on, colour).

    `needs` names what must have happened before the panel has data, as the tests bring it about.
    """

    title: str
    description: str
    kind: str
    unit: str
    targets: tuple[Target, ...]
    width: int = 8
    height: int = 8
    limits: tuple[tuple[float, str], ...] = ()
    states: tuple[State, ...] = ()
    stacked: bool = False
    highest: float | None = None
    links_to_explorer: bool = False
    hidden_columns: tuple[str, ...] = ("Time", "__name__", "job")
    column_names: Mapping[str, str] = field(default_factory=dict)
    needs: str | None = None

    def __post_init__(self) -> None:
        if self.unit not in UNITS or self.kind not in BUILDERS:
            raise ValueError(f"the panel {self.title!r} has an unknown unit or kind")


def build(panel: Panel, number: int) -> Any:
    """The SDK's builder of a panel, without its place."""
    builder = (
        BUILDERS[panel.kind](panel)
        .id(number)
        .title(panel.title)
        .description(panel.description)
        .datasource(DATASOURCE)
        .unit(panel.unit)
        .no_value(NO_DATA)
        .mappings(_mappings(panel))
        .thresholds(_thresholds(panel))
        .span(panel.width)
        .height(panel.height)
    )
    for place, target in enumerate(panel.targets):
        builder = builder.with_target(_query(panel, target, chr(ord("A") + place)))
    if panel.highest is not None:
        builder = builder.max(panel.highest).min(0)
    if panel.links_to_explorer:
        link = dashboard.DashboardLink("Open in the explorer").url(EXPLORER_LINK).target_blank(True)
        builder = builder.data_links([link])
    return builder


def _query(panel: Panel, target: Target, letter: str) -> prometheus.Dataquery:
    query = (
        prometheus.Dataquery()
        .ref_id(letter)
        .expr(target.expression)
        .legend_format(target.legend)
        .datasource(DATASOURCE)
    )
    if panel.kind == "table":
        return query.instant().format(PromQueryFormat.TABLE)
    if panel.kind == "heatmap":
        return query.range().format(PromQueryFormat.HEATMAP)
    return query.range()


def _timeseries(panel: Panel) -> Any:
    tooltip = common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
    legend = (
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs(["lastNotNull", "max"])
    )
    builder = (
        timeseries.Panel()
        .tooltip(tooltip.sort(common.SortOrder.DESCENDING))
        .legend(legend)
        .line_width(1)
        .fill_opacity(30 if panel.stacked else 8)
        .show_points(common.VisibilityMode.AUTO)
        .span_nulls(False)  # a gap is a gap
        .axis_soft_min(0)
    )
    if panel.stacked:
        builder = builder.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    if panel.limits:
        style = common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        builder = builder.thresholds_style(style)
    return builder


def _stat(panel: Panel) -> Any:
    reduce = common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
    return (
        stat.Panel()
        .reduce_options(reduce)
        .graph_mode(common.BigValueGraphMode.AREA)
        .color_mode(common.BigValueColorMode.VALUE)
    )


def _state_timeline(panel: Panel) -> Any:
    return (
        statetimeline.Panel()
        .merge_values(True)
        .show_value(common.VisibilityMode.AUTO)
        .row_height(0.85)
        .fill_opacity(75)
    )


def _heatmap(panel: Panel) -> Any:
    color = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Viridis").steps(32)
    return heatmap.Panel().calculate(False).color(color).cell_gap(1).show_y_histogram()


def _table(panel: Panel) -> Any:
    organize = model.DataTransformerConfig(
        id_val="organize",
        options={
            "excludeByName": {name: True for name in panel.hidden_columns},
            "renameByName": dict(panel.column_names),
            "indexByName": {},
        },
    )
    builder = table.Panel().cell_height(common.TableCellHeight.SM)
    if len(panel.targets) > 1:
        builder = builder.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    return builder.with_transformation(organize)


BUILDERS: Mapping[str, Callable[[Panel], Any]] = {
    "timeseries": _timeseries,
    "stat": _stat,
    "state": _state_timeline,
    "heatmap": _heatmap,
    "table": _table,
}


def _mappings(panel: Panel) -> list[model.ValueMapping]:
    """The states' names, and "no data" for what is not a number: 0 ÷ 0 is not zero."""
    unknown = model.SpecialValueMap(
        options=model.DashboardSpecialValueMapOptions(
            match=model.SpecialValueMatch.NULL_AND_NAN,
            result=model.ValueMappingResult(text=NO_DATA, color=GREY),
        )
    )
    if not panel.states:
        return [unknown]
    named = model.ValueMap(
        options={
            str(state.value): model.ValueMappingResult(text=state.text, color=state.color, index=place)
            for place, state in enumerate(panel.states)
        }
    )
    return [named, unknown]


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    base = BLUE if not panel.limits else GREEN
    steps = [model.Threshold(value=None, color=base)]
    steps += [model.Threshold(value=value, color=color) for value, color in panel.limits]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)
