# SPDX-License-Identifier: Apache-2.0
"""One demo that gets nothing to do, then two and a half times its traffic, which is no fault; then one thing
after the other goes wrong, as two engines and an Alertmanager see it.

The tests follow the demo's time and stand in its order. The rules are the shipped ones in quick motion: see
support/alarms.py.
"""

from __future__ import annotations

import os
import signal

import pytest
from support.dashboards import DASHBOARDS, panels, substituted
from support.monitoring import end

from generate.overview import OVERVIEW
from generate.overview_driver import DRM, IOCTLS
from generate.stages import STAGES
from generate.stages_cpu import PAGE_FAULTS
from hotstage.cli.client import AgentClient

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(150)]

HARD_NEGATIVES = ("idle@6-13", "load-ramp@14.5-24")
ALL_WELL_UNTIL = 25
FAULTS = ("encoder-stall@27-38", "hang@39-51", "xid@53-56.5:48", "token-conflict@56.5-60.5")
"""The GPU of the XID is reset after it has counted as lost."""

NEEDS = {panel.title: panel.needs for board in (OVERVIEW, STAGES) for panel in board.panels if panel.needs}

NOT_HERE = {title for title, need in NEEDS.items() if need in (DRM, IOCTLS, PAGE_FAULTS)}
"""Panels on drivers that a simulated host does not have, and on what is off by default."""


@pytest.fixture(scope="module")
def watched(watch):
    return watch(*HARD_NEGATIVES, *FAULTS, seed=9301)


def empty_panels(engine):
    """Panels of which a query returns nothing, with the queries."""
    empty = {}
    for dashboard in DASHBOARDS.values():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                found = engine.query_range(substituted(target["expr"], rate_range="5s"), seconds=90)
                if not any(value == value for series in found for _, value in series.points):
                    empty.setdefault(panel["title"], []).append(target["expr"])
    return empty


def refuse_configuration(demo):
    """Have the agent read a configuration with a section that there is not."""
    (config,) = demo.directory.glob("hotstage-demo-*/config.toml")
    config.write_text(config.read_text() + "\n[windows.typo]\n")
    os.kill(demo.pid_of("agent"), signal.SIGHUP)


def test_every_variable_of_a_dashboard_finds_its_values_on_both_engines(watched):
    watched.seen.demo.wait_until(5)
    for engine in watched.seen.engines:
        for dashboard in DASHBOARDS.values():
            for variable in dashboard["templating"]["list"]:
                if variable["type"] == "query":
                    series, label = variable["query"][len("label_values(") : -1].rsplit(", ", 1)
                    found = engine.query(f"count by ({label}) ({substituted(series)})")
                    assert all(each.labels[label] for each in found) and found, variable["name"]


def test_neither_idleness_nor_more_traffic_opens_or_fires_anything(watched):
    demo = watched.seen.demo
    demo.wait_until(ALL_WELL_UNTIL)
    heat = [value for _, value in watched.seen.prometheus.query_range(
        "sum(hotstage_endpoint_heat)", seconds=ALL_WELL_UNTIL - 2
    )[0].points]  # fmt: skip
    assert min(heat) < 0.5 * heat[0], "the idle time was seen"
    assert max(heat) > 1.5 * heat[0], "the ramp was seen"
    client = AgentClient(url=demo.agent_url)
    assert client.get("/v1/windows")["windows"] == []
    assert [each["name"] for each in client.get("/v1/breakers")["breakers"] if each["transitions"]] == []
    assert watched.broken_rules() == []
    assert watched.fired() == set()
    assert watched.receiver.deliveries == []


def test_while_all_is_well_every_panel_has_data_on_both_engines_but_those_that_need_a_fault(watched):
    for engine in watched.seen.engines:
        assert set(empty_panels(engine)) == set(NEEDS), engine.name


def test_a_stalled_encoder_pages_and_its_dry_run_breaker_makes_a_ticket(watched):
    watched.wait_told("HotstageStageSlow", 32)
    watched.wait_told("HotstageBreakerOpenDryRun", 15)


def test_a_hung_server_pages(watched):
    watched.wait_told("HotstageServerHung", 35)


def test_when_the_stage_is_well_again_the_page_is_taken_back(watched):
    watched.wait_told("HotstageStageSlow", 25, kind="alert.resolved")


def test_a_server_that_dies_pages(watched):
    watched.end_server("i-1")
    refuse_configuration(watched.seen.demo)
    watched.wait_told("HotstageProcessDied", 15)


def test_a_configuration_that_is_refused_makes_a_ticket(watched):
    watched.wait_told("HotstageConfigReloadFailed", 15)


def test_an_xid_pages(watched):
    watched.wait_told("HotstageGpuXid", 25)


def test_tokens_that_the_gpu_has_no_room_for_make_a_ticket(watched):
    watched.wait_told("HotstageTokenConflict", 25)


def test_after_the_faults_every_panel_has_data_on_both_engines(watched):
    for engine in watched.seen.engines:
        assert set(empty_panels(engine)) == NOT_HERE, engine.name


def test_no_series_was_dropped(watched):
    for engine in watched.seen.engines:
        dropped = engine.query_range("hotstage_series_dropped_total", seconds=90)
        assert {each.labels["metric"] for each in dropped} == set(), engine.name


def test_windows_breaker_moves_and_xids_are_marked_from_both_engines(watched):
    for engine in watched.seen.engines:
        for mark in DASHBOARDS["stages"]["annotations"]["list"]:
            assert engine.query_range(substituted(mark["expr"]), seconds=90), (engine.name, mark["name"])


def test_nothing_else_has_fired_and_every_rule_can_be_evaluated(watched):
    assert watched.fired() == {
        "HotstageStageSlow",
        "HotstageBreakerOpenDryRun",
        "HotstageServerHung",
        "HotstageProcessDied",
        "HotstageGpuXid",
        "HotstageGpuLost",  # nothing has shown back the GPU of the XID
        "HotstageTokenConflict",
        "HotstageConfigReloadFailed",
    }
    assert watched.broken_rules() == []


def test_an_agent_that_goes_makes_a_ticket(watched):
    end(watched.seen.demo.process, signal.SIGINT, seconds=30)
    watched.wait_told("HotstageAgentDown", 15)


def test_the_receiver_believed_all_that_it_got(watched):
    assert watched.receiver.totals()["rejected"] == 0
