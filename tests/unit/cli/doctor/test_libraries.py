# SPDX-License-Identifier: Apache-2.0
"""What doctor says of a library whose plan is known: coverage, price, and probes that are there already."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotstage.cli.doctor.finding import Status
from hotstage.cli.doctor.libraries import check_libraries
from hotstage.cli.doctor.library_scan import LibraryFile, Plan, Scan, User, scan_libraries
from hotstage.cli.doctor.peers import ask_agent
from hotstage.errors import PeerError
from hotstage.probes.discovery.targets import MissedSymbol

HARMLESS = ("cuDriverGetVersion", "cuCtxSynchronize")
PLAN = Plan("ab" * 20, 50, 50, 45, 48, (), is_patched=False, is_unlinked=False, tried_by=HARMLESS)
SERVER = User(100, "python3", None, own_mounts=False, is_deleted=False)


@pytest.fixture
def told(host, by_name):
    """The finding of one libcuda with this plan."""

    def tell(plan: Plan = PLAN, user: User = SERVER, agent=None):
        (host.root / "proc").mkdir(parents=True, exist_ok=True)
        file = LibraryFile("libcuda", "/lib/libcuda.so.550.1", [user], plan)
        host.given(scan_libraries, Scan(libraries=[file], looked=1))
        host.given(ask_agent, agent or PeerError("no agent answers"))
        return by_name(check_libraries(host))["libcuda"]

    return tell


def coverage(build_id: str, state: str = "attached", **more):
    libraries = [{"build_id": build_id, "state": state, **more}]
    return {"address": "x", "health": {}, "coverage": {"processes": [{"libraries": libraries}]}}


def test_a_plain_library_is_told_with_its_figures(told):
    finding = told()
    assert finding.status is Status.OK
    assert finding.detail == (
        "/lib/libcuda.so.550.1 in 1 process (100 python3), build-id abababababab:"
        " 45 of 48 calls by 50 symbols, 50 of them on an emulated instruction;"
        " a trial calls cuDriverGetVersion and cuCtxSynchronize in a process of its own first"
    )
    assert finding.data["symbols"] == 50


def test_single_stepped_probes_are_priced(told):
    assert "30 are single-stepped, at about ten times the cost" in told(replace(PLAN, emulated=20)).detail


def test_what_is_missing_is_named_by_reason(told):
    missed = tuple(MissedSymbol("x", f"cuNew{number}", "not exported") for number in range(8))
    finding = told(replace(PLAN, missed=missed))
    assert "not exported: cuNew0, cuNew1, cuNew2, cuNew3, cuNew4, cuNew5 and 2 more" in finding.detail
    assert len(finding.data["not_probed"]) == 8


@pytest.mark.parametrize("state", ["attached", "alias"])
def test_probes_of_the_running_agent_are_its_own(told, state):
    finding = told(replace(PLAN, is_patched=True), agent=coverage("ab" * 20, state))
    assert finding.status is Status.OK and "probed by the running agent" in finding.detail.split("; ")


@pytest.mark.parametrize("agent", [None, coverage("cd" * 20), coverage("ab" * 20, "failed")])
def test_probes_of_somebody_else_are_a_warning(told, agent):
    finding = told(replace(PLAN, is_patched=True), agent=agent)
    assert finding.status is Status.WARN
    assert "probed already, and not by the agent configured here" in finding.detail


TRIAL = {"placement": "verified", "reason": None, "calls": 22, "functions": list(HARMLESS)}


@pytest.mark.parametrize(
    ("trial", "said", "status"),
    [
        ({}, "tried before its attach: 22 calls of cuDriverGetVersion and cuCtxSynchronize, counted", "ok"),
        ({"placement": "refuted", "reason": "SIGILL"}, "cuCtxSynchronize failed: SIGILL", "warn"),
        ({"placement": "unverified", "reason": "no time"}, "was attached untried: no time", "ok"),
        ({"placement": "unused"}, "no probe of it stands where one would have to be tried", "ok"),
    ],
)
def test_what_the_agent_tried_and_how_that_ended_is_told(told, trial, said, status):
    finding = told(agent=coverage("ab" * 20, trial=TRIAL | trial))
    assert said in finding.detail and finding.status == status
    assert finding.data["trial"]["placement"] == (TRIAL | trial)["placement"]


def test_what_no_trial_can_call_is_told_with_the_reason(told, host):
    finding = told(replace(PLAN, tried_by=(), untried="it exports no function that can be tried"))
    assert finding.detail.endswith("; is attached untried: it exports no function that can be tried")
    assert finding.data["trial"] == {
        "placement": None,
        "functions": [],
        "reason": "it exports no function that can be tried",
    }


def test_memory_that_may_not_be_read_leaves_it_open(told):
    finding = told(replace(PLAN, is_patched=None))
    assert "whether it is probed already cannot be told" in finding.detail
    assert finding.data["is_probed"] is None


def test_a_deleted_file_reaches_only_who_has_it(told):
    assert "its file is deleted" in told(replace(PLAN, is_unlinked=True)).detail


def test_another_mount_namespace_is_told(told):
    assert "100 python3 with its own mounts" in told(user=replace(SERVER, own_mounts=True)).detail


def test_what_is_beyond_reach_says_why_and_is_no_warning(host, by_name):
    (host.root / "proc").mkdir(parents=True, exist_ok=True)
    plan = replace(PLAN, points=0, emulated=0, calls=0, calls_known=0)
    path = "/venv/onnxruntime/capi/onnxruntime_pybind11_state.so"
    host.given(
        scan_libraries, Scan(libraries=[LibraryFile("onnxruntime_python", path, [SERVER], plan)], looked=1)
    )
    host.given(ask_agent, PeerError("no agent answers"))
    finding = by_name(check_libraries(host))["onnxruntime_python"]
    assert finding.status is Status.ABSENT and "past its table of functions" in finding.detail
