# SPDX-License-Identifier: Apache-2.0
"""While the probes are switched off nothing that they told is told as if it were so now: by no route, metric,
screen. On again is a new epoch, and what lay between is unobserved.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from tests.bpf.targets import build_library
from tests.integration.conftest import PROGRAMS

pytestmark = pytest.mark.kernel

TOLD_BY_PROBES = frozenset(
    {"request_rate", "stage_rate", "latency_p95_seconds", "launch_rate", "call_rate", "open_requests"}
)
_NOW = "stage_inflight|endpoint_heat|endpoint_route|probe_cost|governor_level"
GAUGES = re.compile(rf"^hotstage_(?:{_NOW})\w*", re.MULTILINE)


@pytest.fixture
def server(tmp_path):
    library = build_library(tmp_path / "library")
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "marked_server.py"), str(library)], stdin=subprocess.PIPE
    )
    yield process
    process.stdin.close()
    assert process.wait(10) == 0


def test_off_is_told_as_off_and_nothing_as_now(start, server, until):
    agent = start()

    def body(path):
        return json.loads(agent.get(path)[1])

    def told():
        """Entity's kind → columns with a value, of the newest frame."""
        frame = body("/v1/frames?seconds=2")["frames"][-1]
        return {name for each in frame["entities"] for name in each["values"]} & TOLD_BY_PROBES

    def breakers():
        return {each["name"]: each["stale"] for each in body("/v1/breakers")["breakers"]}

    until(lambda: told() == TOLD_BY_PROBES, "all that probes tell")
    until(lambda: body("/v1/stages")["stages"], "the stage")
    assert GAUGES.search(agent.get("/metrics")[1].decode())
    agent.cli("breakers", "trip", "stage:vision_encode:image", "--ttl", "10m")
    agent.cli("breakers", "reset", "stage:vision_encode:image")
    until(lambda: breakers() == {"stage:vision_encode:image": False}, "a breaker that knows")
    assert body("/v1/stages")["off_since"] is None

    agent.order("off", "a driver update")
    until(lambda: "requests" in body("/v1/frames?seconds=2")["frames"][-1]["stale"], "a frame that says so")
    until(lambda: not told(), "a frame of which all seconds are off")
    since = body("/v1/probes")["since"]
    for path in (
        "/v1/coverage",
        "/v1/frames?seconds=2",
        "/v1/stages",
        "/v1/heat",
        "/v1/classes",
        "/v1/memory",
    ):
        assert (body(path)["off_since"], body(path)["stale"]) == (since, True), path
    assert body("/v1/stages")["stages"] == [] and body("/v1/stages")["unattributed_ratio"] is None
    assert body("/v1/heat")["points"] == []
    assert body("/v1/memory")["processes"] == [] and "a driver update" in body("/v1/memory")["unobserved"]
    assert "the probes are off since" in agent.cli("memory")
    assert {"requests", "calls"} <= set(body("/v1/frames?seconds=2")["frames"][-1]["stale"])
    coverage = body("/v1/coverage")
    assert coverage["attached"] == 0 and coverage["governor"]["processes"] == []
    assert all(lib["since_ns"] is None for each in coverage["processes"] for lib in each["libraries"])
    metrics = agent.get("/metrics")[1].decode()
    assert not GAUGES.search(metrics), GAUGES.findall(metrics)
    for collector in ("requests", "calls"):
        assert f'hotstage_collector_up{{collector="{collector}"}} 0.0' in metrics
    assert "hotstage_coverage_attached_symbols 0.0" in metrics
    until(lambda: all(breakers().values()), "breakers that say that they know nothing")
    shown = agent.cli("top", "--once", "--interval", "0.2")
    assert "nothing is seen since" in shown and "a driver update" in shown
    assert "a driver update" in agent.cli("coverage") and ", since" in agent.cli("coverage")
    rows = json.loads(agent.cli("top", "--json", "--interval", "0.2"))["processes"]
    (row,) = [each for each in rows if each["pid"] == server.pid]
    assert row["state"] == "off"
    assert not [name for name, value in row.items() if value not in (None, "off", server.pid, row["name"])]

    agent.order("on", "done")
    until(lambda: told() == TOLD_BY_PROBES, "all that probes tell, again")
    coverage = body("/v1/coverage")
    of_server = [each for each in coverage["epochs"] if each["pid"] == server.pid]
    (epoch,) = [each for each in of_server if each["kind"] == "libcuda"]
    now = [
        lib["since_ns"]
        for each in coverage["processes"]
        if each["pid"] == server.pid
        for lib in each["libraries"]
        if lib["kind"] == "libcuda"
    ]
    assert now[0] > epoch["until_ns"]
    assert body("/v1/stages")["off_since"] is None
    until(lambda: not any(breakers().values()), "breakers that know again")
    frame = body("/v1/frames?seconds=2")["frames"][-1]
    (host,) = [each["values"] for each in frame["entities"] if each["kind"] == "host"]
    assert host["request_rate"] > 100  # of the time since they are on, not of ten seconds
