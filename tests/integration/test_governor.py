# SPDX-License-Identifier: Apache-2.0
"""A process whose slow calls are told without end: stacks are the dear part of what its probes cost, so they
go, and nothing else does. The whole agent says so: as an event, a metric and in coverage.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
from contextlib import closing

import pytest
from tests.bpf.targets import build_library
from tests.integration.conftest import PROGRAMS

pytestmark = [pytest.mark.kernel, pytest.mark.long]

LIMIT, THREADS = 0.02, 24
SETTINGS = (
    # Each call is a slow one
    "slow_call_seconds = 1e-7\ndriver = false\nxid = false\n"
    f"[governor]\nlimit_ratio = {LIMIT}\nwindow_seconds = 2.5\n"
)


@pytest.fixture
def server(tmp_path):
    """Starts it with so much CPU time a call, in ns."""
    program, library = tmp_path / "slow_calls", build_library(tmp_path / "library")
    source = PROGRAMS / "slow_calls.c"
    subprocess.run(["gcc", "-O2", "-Wall", "-pthread", "-o", program, source], check=True, timeout=60)
    started = []

    def start(cpu_ns):
        command = [program, library, str(THREADS), str(round(cpu_ns))]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        process.stdin.close()
        assert process.wait(10) == 0


def next_event(stream):
    """(type, data) of the next one; the connection's timeout is the deadline."""
    fields = {}
    while line := stream.readline().decode():
        name, _, value = line.rstrip("\n").partition(": ")
        fields[name] = value
        if not line.strip() and "data" in fields:
            return fields["event"], json.loads(fields["data"])
    raise AssertionError("the stream has ended")


def test_stacks_are_the_first_to_go_and_enough(start, server, until):
    agent = start(more=SETTINGS)

    def body(path):
        return json.loads(agent.get(path)[1])

    costs = body("/v1/coverage")["governor"]["costs"]
    dear, cheap = (costs["timed"] + costs[name] for name in ("told", "told_bare"))
    # The limit lies in the middle of both, by ratio
    process = server((dear * cheap) ** 0.5 / LIMIT)

    def governed():
        found = [each for each in body("/v1/coverage")["governor"]["processes"] if each["pid"] == process.pid]
        return found[0] if found else None

    def told():
        """Calls whose stacks were told, and calls that were made."""
        rows = [each for each in body("/v1/stacks")["stacks"] if each["pid"] == process.pid]
        made = body("/v1/coverage")["calls"]["by_pid"][str(process.pid)]["cuStreamSynchronize"]["counted"]
        return sum(row["told"] for row in rows), made

    with closing(http.client.HTTPConnection("127.0.0.1", agent.port, timeout=15)) as connection:
        connection.request("GET", "/v1/events")
        stream = connection.getresponse()
        until(governed, "its library is attached")
        process.stdin.write(b"\n")
        process.stdin.flush()
        until(lambda: told()[0], "stacks of its calls")
        event = ("", {})
        while not event[0].startswith("io.hotstage.probes.level."):
            event = next_event(stream)
    data = event[1]["data"]
    assert (data["pid"], data["from"], data["to"]) == (process.pid, "full", "no_stacks")
    paid = float(re.match(r"probes cost ([\d.]+)% of its CPU time, 2.0% are allowed", data["reason"])[1])
    assert 2 < paid < 5

    def within():
        """What is known of it while it pays less than the limit at its level."""
        now = governed()
        is_known = now["level"] == "no_stacks" and now["cost_ratio"] is not None
        return is_known and 0 < now["cost_ratio"] < LIMIT and now

    assert (
        until(within, "what it pays there, once a second of that level is over")["reason"] == data["reason"]
    )
    assert 'hotstage_governor_level{level="no_stacks"} 1.0' in agent.get("/metrics")[1].decode()
    assert f"probes of {process.pid}: " in (shown := agent.cli("coverage", "--all"))
    assert "of its CPU time, level no_stacks" in shown
    stacks, made = told()
    now_made = until(
        lambda: (found := told())[1] > made + 3 * 90 * THREADS and found, "three seconds of calls"
    )
    assert now_made[0] == stacks, "none was told any more"
    assert within()
