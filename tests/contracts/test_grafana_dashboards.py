# SPDX-License-Identifier: Apache-2.0
"""The dashboards keep the rules of grafana/dashboard-linter and our own, and are what the generator makes.

Their queries are run against real engines in tests/integration/monitoring.
"""

from __future__ import annotations

import json
import shutil

import pytest
from grafana_foundation_sdk.models import units
from support.dashboards import DASHBOARDS, RATE_RANGE, panels, selected, substituted, targets

from generate.__main__ import main
from generate.overview import OVERVIEW
from generate.panels import BUILDERS, Panel, Target
from generate.promql import DASHBOARD
from generate.stages import STAGES
from hotstage.sinks import metrics
from hotstage.sinks.engine_metrics import ENGINE_METRICS
from hotstage.sinks.metrics import METRICS

KNOWN = {metric.name: metric for metric in METRICS}
SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
SERIES = {name + suffix: metric for name, metric in KNOWN.items() for suffix in SUFFIXES[metric.kind]}
TARGET_LABELS = {"job", "instance", "le"}

UNRATED = {
    "Breaker moves": "counts since the agent began: a handful of rows that a reader counts himself",
    "XIDs": "how many there were; a rate of an event a month says nothing",
}
"""Panels that show a counter as it stands, and why."""

every_dashboard = pytest.mark.parametrize("name", sorted(DASHBOARDS))
every_target = pytest.mark.parametrize(
    ("name", "panel", "target"),
    targets(),
    ids=[f"{name}: {panel['title']} {target['refId']}" for name, panel, target in targets()],
)


def test_the_committed_files_are_what_the_generator_makes():
    assert main(["--check"]) == 0


def test_a_file_edited_by_hand_is_named(tmp_path, capsys):
    assert main(["--output", str(tmp_path)]) == 0
    edited = tmp_path / "grafana/dashboards/stages.json"
    edited.write_text(edited.read_text().replace('"hotstage-stages"', '"mine"'))
    shutil.rmtree(tmp_path / "deploy/prometheus/tests")
    assert main(["--check", "--output", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "dashboards/stages.json" in said and "prometheus/tests/alerts.yml" in said
    assert "overview.json" not in said


def test_links_of_alerts_lead_where_the_command_says(tmp_path):
    main(
        [
            "--output",
            str(tmp_path),
            "--grafana-url",
            "https://g.example/",
            "--runbook-url",
            "https://r.example/R",
        ]
    )
    for file in ("deploy/prometheus/rules/alerts.yml", "grafana/provisioning/alerting/hotstage.yaml"):
        text = (tmp_path / file).read_text()
        assert "https://g.example/d/hotstage-overview" in text
        assert "https://r.example/R#hotstageagentdown" in text
        assert "127.0.0.1:3000" not in text


@every_dashboard
def test_a_dashboard_can_be_linked_to_and_not_be_edited(name):
    dashboard = DASHBOARDS[name]
    assert dashboard["uid"] == f"hotstage-{name}"
    assert dashboard["editable"] is False
    assert dashboard["tags"] == ["hotstage"]
    assert dashboard["schemaVersion"] >= 36
    assert (dashboard["graphTooltip"], dashboard["refresh"]) == (1, "30s")
    assert dashboard["title"] and dashboard["description"]
    (link,) = dashboard["links"]
    assert (link["type"], link["tags"], link["keepTime"], link["includeVars"]) == (
        "dashboards",
        ["hotstage"],
        True,
        True,
    )


@every_dashboard
def test_the_data_source_is_chosen_and_never_typed_in(name):
    variables = {each["name"]: each for each in DASHBOARDS[name]["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    text = json.dumps(DASHBOARDS[name])
    assert text.count('"uid"') == text.count('"uid": "${datasource}"') + 1  # its own


@every_dashboard
def test_job_and_host_narrow_everything(name):
    variables = {each["name"]: each for each in DASHBOARDS[name]["templating"]["list"]}
    for wanted in ("job", "instance"):
        variable = variables[wanted]
        assert variable["label"] and variable["multi"] and variable["includeAll"]
        assert (variable["allValue"], variable["refresh"]) == (".+", 2)
        assert "hotstage_build_info" in variable["query"]
    others = [each for each in variables.values() if each["type"] == "query" and each["name"] != "job"]
    assert others and all('job=~"$job"' in each["query"] for each in others)


@every_dashboard
def test_every_variable_asks_for_a_label_that_its_metric_has(name):
    for variable in DASHBOARDS[name]["templating"]["list"]:
        if variable["type"] == "query":
            series, label = variable["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
            (found,) = selected(substituted(series))
            assert label in {*KNOWN[found.name].labels, *TARGET_LABELS}


@every_dashboard
def test_windows_breakers_and_xids_are_marked_on_every_panel(name):
    marks = {each["name"]: each for each in DASHBOARDS[name]["annotations"]["list"]}
    assert {mark: selected(substituted(each["expr"]))[0].name for mark, each in marks.items()} == {
        "Anomaly windows": "hotstage_window_active",
        "Breaker moves": "hotstage_breaker_last_transition_timestamp_seconds",
        "XIDs": "hotstage_gpu_xid_last_timestamp_seconds",
    }
    assert marks["XIDs"]["useValueForTime"] and marks["Breaker moves"]["useValueForTime"]


@every_dashboard
def test_every_panel_says_what_it_shows_in_which_unit(name):
    known_units = {value for value in vars(units).values() if isinstance(value, str)}
    shown = panels(DASHBOARDS[name])
    assert len({panel["title"] for panel in shown}) == len(shown)
    for panel in shown:
        assert panel["title"] and len(panel["description"]) > 20 and panel["targets"]
        assert panel["fieldConfig"]["defaults"]["unit"] in known_units
        assert panel["datasource"]["uid"] == "${datasource}"


@every_dashboard
def test_what_is_not_known_is_never_shown_as_a_value(name):
    for panel in panels(DASHBOARDS[name]):
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["noValue"] == "no data"
        assert any(
            each["type"] == "special" and each["options"]["match"] == "null+nan"
            for each in defaults["mappings"]
        )
        assert not defaults.get("custom", {}).get("spanNulls"), "a gap must stay a gap"


@every_dashboard
def test_panels_have_numbers_of_their_own_and_do_not_overlap(name):
    numbers = [panel["id"] for panel in DASHBOARDS[name]["panels"]] + [
        panel["id"] for row in DASHBOARDS[name]["panels"] for panel in row.get("panels", [])
    ]
    assert len(set(numbers)) == len(numbers)
    for group in (DASHBOARDS[name]["panels"], *(row.get("panels", []) for row in DASHBOARDS[name]["panels"])):
        taken = set()
        for panel in group:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken, panel["title"]
            assert place["x"] + place["w"] <= 24
            taken |= cells


@every_dashboard
def test_an_endpoint_links_to_the_explorer(name):
    for panel in panels(DASHBOARDS[name]):
        by_endpoint = any("{{endpoint}}" in target["legendFormat"] for target in panel["targets"])
        links = panel["fieldConfig"]["defaults"].get("links", [])
        assert bool(links) is by_endpoint, panel["title"]
        assert all(
            link["url"].startswith("${explorer}/?endpoint=${__field.labels.endpoint}&from=") for link in links
        )


@every_target
def test_a_query_is_promql_over_metrics_that_exist_and_is_narrowed_by_job_and_host(name, panel, target):
    found = selected(substituted(target["expr"], job="JOB", host="HOST"))
    assert found
    for each in found:
        assert each.matchers["job=~"] == "JOB" and each.matchers["instance=~"] == "HOST"
        if each.name != "up":
            labels = {matcher.rstrip("=!~") for matcher in each.matchers}
            assert labels <= {*SERIES[each.name].labels, *TARGET_LABELS}


@every_target
def test_a_counter_is_shown_as_a_rate_over_the_interval_that_grafana_gives(name, panel, target):
    for each in selected(substituted(target["expr"])):
        is_rated = any(function in {"rate", "increase", "irate"} for function in each.inside)
        if is_rated:
            assert each.range_seconds == 7 * 60 + 13, f"{RATE_RANGE} stands for $__rate_interval"
        if each.name != "up" and SERIES[each.name].kind != "gauge":
            assert is_rated is (panel["title"] not in UNRATED)
        elif each.name != "up":
            assert not is_rated, "a gauge has no rate"


@every_target
def test_a_legend_names_labels_that_the_query_leaves(name, panel, target):
    for label in [part.split("}}")[0] for part in target["legendFormat"].split("{{")[1:]]:
        metrics_labels = {
            label
            for each in selected(substituted(target["expr"]))
            if each.name != "up"
            for label in SERIES[each.name].labels
        }
        assert label in metrics_labels | TARGET_LABELS
        if "by (" in target["expr"]:
            assert f"{label}" in target["expr"].partition("by (")[2]


def test_metrics_that_no_dashboard_shows_are_left_out_on_purpose():
    shown = {
        SERIES[each.name].name
        for _, _, target in targets()
        for each in selected(substituted(target["expr"]))
        if each.name != "up"
    }
    assert set(KNOWN) - shown == {
        "hotstage_endpoint_instance_request_rate",  # heat is this times a weight
        "hotstage_endpoint_instance_requests",  # the size of the explorer's markers
        "hotstage_endpoint_request_duration_seconds",  # recording rules; the panels show the exact P95
        "hotstage_launches_unknown_graphs_total",  # says what the kernels in graphs lack
        "hotstage_governor_level",  # `hotstage coverage` names the processes
        "hotstage_probe_cost_ratio",
        "hotstage_log_records_not_journaled_total",  # only where the agent logs to systemd's journal
        "hotstage_otlp_spans_total",
        "hotstage_otlp_spans_dropped_total",  # an alert, as the next two; most hosts send no OTLP
        "hotstage_otlp_events_dropped_total",
        "hotstage_otlp_export_failures_total",
        "hotstage_slo_events_total",  # only those who set objectives have them
        "hotstage_slo_objective_ratio",
        "hotstage_store_changes_total",
        "hotstage_webhook_events_total",
        "hotstage_webhook_refused",  # its events wait: the alert on their age fires
        "hotstage_window_anomalies_total",  # alerts; the panels show what is open
        *(metric.name for metric in ENGINE_METRICS),  # only those who configure engines have them
    }


def test_a_mistyped_label_does_not_become_an_empty_panel():
    with pytest.raises(ValueError, match="no label for stge"):
        DASHBOARD.select(metrics.STAGE_INFLIGHT, 'stge="x"')


def test_a_rate_of_a_gauge_and_a_quantile_of_a_counter_are_refused():
    with pytest.raises(ValueError, match="is a gauge"):
        DASHBOARD.rate(metrics.STAGE_INFLIGHT)
    with pytest.raises(ValueError, match="is a counter"):
        DASHBOARD.quantile(0.95, metrics.CALLS, by=("call",))


@pytest.mark.parametrize(("kind", "unit"), [("timeseries", "parsecs"), ("pie", "s")])
def test_a_panel_of_an_unknown_unit_or_kind_is_refused(kind, unit):
    with pytest.raises(ValueError, match="unknown unit or kind"):
        Panel("t", "d", kind, unit, (Target("up", ""),))


def test_every_kind_of_panel_is_used():
    assert {panel.kind for board in (OVERVIEW, STAGES) for panel in board.panels} == set(BUILDERS)
