# SPDX-License-Identifier: Apache-2.0
"""A running agent and the service's units, as they answer."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from hotstage.cli.doctor.finding import Status
from hotstage.cli.doctor.peers import _maps, agent_coverage, ask_agent, check_agent, check_units, judge_unit
from hotstage.config.settings import Config, HttpConfig
from hotstage.errors import PrivilegeError

COVERAGE = {
    "rung": "S",
    "attached": 53,
    "emulated": 53,
    "processes": [
        {"libraries": [{"build_id": "aa", "state": "attached"}, {"build_id": "bb", "state": "failed"}]},
        {"libraries": [{"build_id": "cc", "state": "alias"}, {"build_id": None, "state": "attached"}]},
    ],
}


class Answers(http.server.BaseHTTPRequestHandler):
    health = "ok"

    def do_GET(self) -> None:
        body = {"status": self.health} if self.path == "/healthz" else COVERAGE
        data = json.dumps(body).encode()
        self.send_response(503 if self.health == "failing" and self.path == "/healthz" else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture(params=["ok"])
def with_agent(request, host) -> Iterator[object]:
    handler = type("Answering", (Answers,), {"health": request.param})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        listen = f"127.0.0.1:{server.server_address[1]}"
        host.config = Config(http=HttpConfig(listen=listen, socket=str(host.root / "agent.sock")))
        yield host
        server.shutdown()
        thread.join()


def test_a_running_agent_is_told_with_its_coverage(with_agent):
    (finding,) = check_agent(with_agent)
    assert finding.status is Status.OK
    assert "is ok: rung S, 53 symbols probed (53 emulated) in 2 processes" in finding.detail
    assert agent_coverage(with_agent) == {"aa", "cc"}


@pytest.mark.parametrize("with_agent", ["failing"], indirect=True)
def test_an_agent_that_is_not_well_is_a_warning(with_agent):
    (finding,) = check_agent(with_agent)
    assert (finding.status, finding.data["health"]) == (Status.WARN, "failing")


def test_no_agent_is_no_lack(host):
    host.config = Config(http=HttpConfig(listen="127.0.0.1:9", socket=str(host.root / "agent.sock")))
    (host.root / "proc").mkdir(parents=True)
    (finding,) = check_agent(host)
    assert (finding.status, finding.data["running"]) == (Status.ABSENT, False)
    assert agent_coverage(host) is None


def test_an_agent_of_another_configuration_is_told(host):
    host.config = Config(http=HttpConfig(listen="127.0.0.1:9", socket=str(host.root / "agent.sock")))
    host.write({"proc/41/comm": "python\n", "proc/41/cmdline": "python\0-m\0hotstage\0agent\0"})
    (finding,) = check_agent(host.link("proc/41/fd/9", "anon_inode:bpf_link"))
    assert finding.status is Status.WARN
    assert "41 python: python -m hotstage agent" in finding.detail


def test_an_agent_that_this_user_may_not_ask_is_unknown(host):
    host.given(ask_agent, PrivilegeError("/run/x: not allowed to connect", remedy="join the group"))
    (finding,) = check_agent(host)
    assert (finding.status, finding.remedy) == (Status.UNKNOWN, "join the group")


def test_without_systemd_there_are_no_units(host):
    (finding,) = check_units(host)
    assert finding.data == {"runs": False}


def state(**changed: str) -> dict[str, str]:
    usual = {
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
        "UnitFileState": "enabled",
    }
    return {**usual, "Result": "success", "NRestarts": "0", **changed}


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({}, Status.OK, "active (running), enabled"),
        ({"LoadState": "not-found"}, Status.ABSENT, "not installed"),
        ({"ActiveState": "failed", "SubState": "failed", "Result": "exit-code"}, Status.WARN, "exit-code"),
        ({"NRestarts": "7"}, Status.WARN, "started again 7 times"),
        ({"ActiveState": "inactive", "SubState": "dead", "UnitFileState": ""}, Status.ABSENT, "not enabled"),
    ],
)
def test_units_are_judged_by_what_systemd_says(changed, status, said):
    finding = judge_unit("hotstage-agent.service", state(**changed))
    assert finding.status is status
    assert said in finding.detail
    assert (finding.remedy is None) is (status is Status.OK)


def test_memory_of_maps_is_told_map_by_map_the_largest_first():
    sizes = {"events": 4 << 20, "threads": 9 << 20, "tiny": 8, "requests": 1 << 20, "strange": "x"}
    (finding,) = _maps(sizes)
    assert finding.detail == (
        "the agent's 4 hold 14.0 MiB of kernel memory; the largest: threads 9.0, events 4.0, requests 1.0"
    )
    assert list(finding.data["by_map"]) == ["threads", "events", "requests", "tiny"]
    assert [*_maps(None), *_maps([]), *_maps({})] == []
