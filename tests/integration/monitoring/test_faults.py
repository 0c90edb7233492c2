# SPDX-License-Identifier: Apache-2.0
"""One demo in which one thing after the other goes wrong, as two engines and an Alertmanager see it.

The tests follow the demo's time and stand in its order. The rules are the shipped ones in quick motion: see
FASTER in support/alarms.py.
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

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(150)]

FAULTS = ("encoder-stall@19-32", "hang@36-47", "xid@56-57:48", "token-conflict@60-64")
SERVER_DIES_AT = 49

NEEDS = {panel.title: panel.needs for board in (OVERVIEW, STAGES) for panel in board.panels if panel.needs}

NOT_HERE = {title for title, need in NEEDS.items() if need in (DRM, IOCTLS, PAGE_FAULTS)}
"""Panels on drivers that a simulated host does not have, and on what is off by default."""


@pytest.fixture(scope="module")
def watched(watch):
    return watch(*FAULTS, seed=9301)


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


def test_every_variable_of_a_dashboard_finds_its_values_on_both_engines(watched):
    watched.seen.demo.wait_until(5)
    for engine in watched.seen.engines:
        for dashboard in DASHBOARDS.values():
            for variable in dashboard["templating"]["list"]:
                if variable["type"] == "query":
                    series, label = variable["query"][len("label_values(") : -1].rsplit(", ", 1)
                    found = engine.query(f"count by ({label}) ({substituted(series)})")
                    assert all(each.labels[label] for each in found) and found, variable["name"]


def test_while_all_is_well_every_panel_has_data_on_both_engines_but_those_that_need_a_fault(watched):
    watched.seen.demo.wait_until(17.5)
    for engine in watched.seen.engines:
        assert set(empty_panels(engine)) == set(NEEDS), engine.name
    assert watched.fired() == set()


def test_a_stalled_encoder_pages_and_its_dry_run_breaker_makes_a_ticket(watched):
    watched.wait_told("HotstageStageSlow", 32)
    watched.wait_told("HotstageBreakerOpenDryRun", 15)


def test_a_hung_server_pages(watched):
    watched.wait_told("HotstageServerHung", 35)


def test_when_the_stage_is_well_again_the_page_is_taken_back(watched):
    watched.wait_told("HotstageStageSlow", 25, kind="alert.resolved")


def test_a_server_that_dies_pages(watched):
    watched.seen.demo.wait_until(SERVER_DIES_AT)
    watched.end_server("i-1")
    watched.wait_told("HotstageProcessDied", 15)


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


def test_a_configuration_that_is_refused_makes_a_ticket(watched):
    demo = watched.seen.demo
    (config,) = demo.directory.glob("hotstage-demo-*/config.toml")
    config.write_text(config.read_text() + "\n[windows.typo]\n")
    os.kill(demo.pid_of("agent"), signal.SIGHUP)
    watched.wait_told("HotstageConfigReloadFailed", 15)


def test_nothing_else_has_fired_and_every_rule_can_be_evaluated(watched):
    assert watched.fired() == {
        "HotstageStageSlow",
        "HotstageBreakerOpenDryRun",
        "HotstageServerHung",
        "HotstageProcessDied",
        "HotstageGpuXid",
        "HotstageGpuLost",  # the window of an XID is open for longer than a fifteenth of this rule's 30 s
        "HotstageTokenConflict",
        "HotstageConfigReloadFailed",
    }
    assert watched.broken_rules() == []


def test_an_agent_that_goes_makes_a_ticket(watched):
    end(watched.seen.demo.process, signal.SIGINT, seconds=30)
    watched.wait_told("HotstageAgentDown", 15)


def test_the_receiver_believed_all_that_it_got(watched):
    assert watched.receiver.totals()["rejected"] == 0
