# SPDX-License-Identifier: Apache-2.0
"""What both dashboards share: variables, annotations, links, rows, numbers of panels. No query of a panel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from generate.panels import DATASOURCE, Panel, build
from generate.promql import DASHBOARD, total
from hotstage.sinks import metrics, self_metrics
from hotstage.sinks.metric import Metric

T = TypeVar("T")

TAG = "hotstage"
EXPLORER = "http://127.0.0.1:9179"


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading; a collapsed row asks nothing until it is opened."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice of label values; `otherwise` is what "All" stands for."""

    name: str
    label: str
    description: str
    of: Metric
    from_label: str
    otherwise: str = ".*"


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard. The uid never changes: links and alerts name it."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()

    @property
    def panels(self) -> list[Panel]:
        return [panel for row in self.rows for panel in row.panels]

    def json(self) -> str:
        """As Grafana's provisioning reads it."""
        return JSONEncoder(sort_keys=True, indent=2).encode(_dashboard(self).build()) + "\n"


JOB = Variable("job", "Job", "The scrape job.", self_metrics.BUILD_INFO, "job", ".+")
INSTANCE = Variable(
    "instance", "Host", "The agent's address, one for each host.", self_metrics.BUILD_INFO, "instance", ".+"
)
GPU = Variable("gpu", "GPU", "By its UUID, as NVML spells it.", metrics.GPU_INFO, "gpu_uuid")
ENDPOINT = Variable("endpoint", "Endpoint", "A route of the server.", metrics.ENDPOINT_HEAT, "endpoint")
STAGE = Variable("stage", "Stage", "A stage of the pipeline.", metrics.STAGE_STATE, "stage")
MODALITY = Variable("modality", "Modality", "text, image, audio, video.", metrics.STAGE_STATE, "modality")


def _dashboard(board: Board) -> dashboard.Dashboard:
    chosen = (JOB, INSTANCE, *board.variables)
    builder = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .refresh("30s")
        .time("now-30m", "now")
        .timezone("browser")
        .link(_siblings())
        .annotations(_annotations())
        .variables([_modern(each) for each in (*_fixed_variables(), *map(_variable, chosen))])
    )
    number = 1
    for row in board.rows:
        panels = [build(panel, number + 1 + place) for place, panel in enumerate(row.panels)]
        heading = dashboard.Row(row.title).collapsed(row.collapsed).id(number)
        number += 1 + len(panels)
        if row.collapsed:
            for panel in panels:
                heading = heading.with_panel(panel)
        builder = builder.with_row(heading)
        if not row.collapsed:
            for panel in panels:
                builder = builder.with_panel(panel)
    return builder


def _siblings() -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink("hotstage")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
        .icon("external link")
    )


def _fixed_variables() -> list[Any]:
    source = dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    explorer = dashboard.TextBoxVariable("explorer").label("Explorer").default_value(EXPLORER)
    return [
        source.description("A Prometheus or a VictoriaMetrics."),
        explorer.description("Where the links to the explorer go."),
    ]


def _modern(builder: Builder[model.VariableModel]) -> Builder[model.VariableModel]:
    """Without the fields of interval variables, which the SDK gives to all and the schema does not know."""
    variable = builder.build()
    variable.auto = variable.auto_min = variable.auto_count = None
    return _Built(variable)


def _variable(each: Variable) -> dashboard.QueryVariable:
    """Narrowed by job and host, as far as those are chosen before it."""
    match each.name:
        case "job":
            series = each.of.name
        case "instance":
            series = f'{each.of.name}{{job=~"$job"}}'
        case _:
            series = DASHBOARD.select(each.of)
    return (
        dashboard.QueryVariable(each.name)
        .label(each.label)
        .description(each.description)
        .datasource(DATASOURCE)
        .query(f"label_values({series}, {each.from_label})")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(each.otherwise)
        .current(model.VariableOption(selected=True, text="All", value="$__all"))
    )


class _PrometheusAnnotation(model.AnnotationQuery):
    """With the Prometheus fields of an annotation, which the SDK's type lacks."""

    title_format = ""
    tag_keys = ""
    is_time_the_value = False

    def to_json(self) -> dict[str, object]:
        own: dict[str, object] = {"titleFormat": self.title_format, "tagKeys": self.tag_keys}
        if self.is_time_the_value:
            own["useValueForTime"] = True
        return super().to_json() | own


def _annotations() -> list[Builder[model.AnnotationQuery]]:
    """Windows as regions; a breaker's move and an XID at the time that the metric itself tells."""
    windows = total(DASHBOARD.select(metrics.WINDOW_ACTIVE), "instance", "kind", "severity", "stage")
    moved = f"1000 * {DASHBOARD.select(metrics.BREAKER_LAST)}"
    xid = f"1000 * {DASHBOARD.select(metrics.GPU_XID_LAST)}"
    return [
        _annotation("Anomaly windows", windows, "red", "{{kind}} {{stage}}", "severity,instance"),
        _annotation("Breaker moves", moved, "orange", "{{breaker}}", "instance", at_value=True),
        _annotation("XIDs", xid, "purple", "XID {{xid}}", "gpu_uuid,instance", at_value=True),
    ]


def _annotation(
    name: str, expression: str, color: str, title: str, tags: str, *, at_value: bool = False
) -> Builder[model.AnnotationQuery]:
    annotation = _PrometheusAnnotation(
        name=name, datasource=DATASOURCE, enable=True, icon_color=color, expr=expression, built_in=None
    )
    annotation.title_format, annotation.tag_keys, annotation.is_time_the_value = title, tags, at_value
    return _Built(annotation)


class _Built(Builder[T]):
    """A model where the SDK asks for a builder of one."""

    def __init__(self, built: T) -> None:
        self._built = built

    def build(self) -> T:
        return self._built
