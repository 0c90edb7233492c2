# SPDX-License-Identifier: Apache-2.0
"""The real agent, with real probes, over its sockets: every body is what OpenAPI promises; it dies and lives
well. The tests that share one agent stand in the order of its life.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
from importlib.resources import files

import jsonschema
import pytest
from tests.integration.conftest import free_tcp_port, wait_until
from tests.integration.whole_agent import WholeAgent

from hotstage.sinks.metrics import METRICS

pytestmark = pytest.mark.kernel

OPENAPI = json.loads(files("hotstage.api").joinpath("openapi.json").read_text())
BODIES = {
    "/healthz": "Health",
    "/readyz": "Ready",
    "/v1/heat": "Heat",
    "/v1/stages": "Stages",
    "/v1/classes": "Classes",
    "/v1/components": "Components",
    "/v1/latency": "Latency",
    "/v1/windows": "Windows",
    "/v1/breakers": "Breakers",
    "/v1/coverage": "Coverage",
    "/v1/snapshot": "Snapshot",
    "/v1/snapshot/plan": "RecoveryPlan",
    "/v1/snapshots": "StoredSnapshots",
    "/v1/requests": "Requests",
    "/v1/frames?seconds=5": "Frames",
}


@pytest.fixture(scope="module")
def born(tmp_path_factory):
    """`born()`: an agent, ready; each is born on what the one before has left."""
    directory, port = tmp_path_factory.mktemp("api") / "agent", free_tcp_port()
    agents = []

    def begin():
        agents.append(WholeAgent(directory, port))
        wait_until(agents[-1].is_ready, "the agent's readiness")
        return agents[-1]

    yield begin
    for agent in agents:
        agent.process.kill()
        agent.process.wait(10)
        agent.process.stderr.close()


@pytest.fixture(scope="module")
def agent(born):
    return born()


def test_every_body_is_what_openapi_promises_and_metrics_are_clean(agent):
    for path, schema in BODIES.items():
        status, body = agent.get(path)
        assert status == 200, path
        promised = {"$ref": f"#/components/schemas/{schema}", "components": OPENAPI["components"]}
        jsonschema.validate(json.loads(body), promised)
    status, exposition = agent.get("/metrics")
    checked = subprocess.run(
        [shutil.which("promtool"), "check", "metrics"], input=exposition, capture_output=True, check=False
    )
    assert (status, checked.returncode, checked.stdout + checked.stderr) == (200, 0, b"")
    exported = {line.split()[2] for line in exposition.decode().splitlines() if line.startswith("# TYPE")}
    assert exported <= {metric.name for metric in METRICS}
    assert {"hotstage_up", "hotstage_build_info", "hotstage_losses_total"} <= exported


EXECS = """// hotstage-probe: 1
// hotstage-metric: started_total from started: Programs that were started
BPF_ARRAY(started, u64, 1);
TRACEPOINT_PROBE(sched, sched_process_exec)
{
	started.increment(0);
	return 0;
}
"""


def test_an_operators_program_is_a_metric_after_a_reload_and_a_wrong_one_changes_nothing(agent, until):
    def metrics():
        return agent.get("/metrics")[1].decode()

    def states():
        return [each["state"] for each in json.loads(agent.get("/v1/coverage")[1])["custom"]]

    assert "hotstage_custom_" not in metrics()
    folder = agent.directory / "probes.d"
    folder.mkdir()
    (folder / "execs.bpf.c").write_text(EXECS)
    agent.process.send_signal(signal.SIGHUP)
    until(lambda: states() == ["attached"], "the program's attachment")
    subprocess.run(["/bin/true"], check=True)
    name = "hotstage_custom_execs_started_total"
    until(lambda: re.search(rf"^{name} [1-9]", metrics(), re.MULTILINE), "its count")
    (folder / "execs.bpf.c").write_text(EXECS.replace("increment", "no_such"))
    agent.process.send_signal(signal.SIGHUP)
    until(lambda: states() == ["refused"], "the refusal")
    assert re.search(rf"^{name} [1-9]", metrics(), re.MULTILINE)


def test_the_kill_switch_is_kept_and_told_with_who_moved_it(agent, until):
    def moves():
        body = json.loads(agent.get("/v1/probes")[1])
        jsonschema.validate(
            body, {"$ref": "#/components/schemas/Probes", "components": OPENAPI["components"]}
        )
        return [(each["state"], each["actor"]) for each in body["moves"]]

    assert moves() == []
    agent.process.send_signal(signal.SIGUSR1)
    until(lambda: moves() == [("off", "a signal")], "the row of the move off")
    assert json.loads(agent.get("/v1/coverage")[1])["off"].startswith("switched off by a signal")
    agent.process.send_signal(signal.SIGUSR2)
    until(lambda: moves() == [("on", "a signal"), ("off", "a signal")], "the row of the move on")
    stored = sqlite3.connect(agent.directory / "state" / "hotstage.db")
    told = [row[0] for row in stored.execute("SELECT type FROM outbox ORDER BY seq")]
    stored.close()
    assert told == ["io.hotstage.probes.off.v1", "io.hotstage.probes.on.v1"]


def test_an_agent_killed_with_minus_9_starts_again_on_what_it_left_and_ends_well(agent, born):
    agent.end(signal.SIGKILL)
    again = born()
    assert again.get("/v1/breakers")[0] == 200
    code, _ = again.end()
    assert code == 0
    assert not (agent.directory / "agent.sock").exists()


def test_a_port_in_use_is_exit_4_with_a_remedy_and_nothing_left_attached(start, free_port):
    with socket.create_server(("127.0.0.1", free_port)):
        agent = start(ready=False)
        code = agent.process.wait(20)
    said = agent.process.stderr.read()
    assert code == 4
    assert f"127.0.0.1:{free_port}" in said
    assert "set http.listen" in said


def test_a_state_directory_that_cannot_be_written_is_said(start, tmp_path):
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "state").write_text("a file where a directory should be")
    agent = start(ready=False)
    code = agent.process.wait(20)
    said = agent.process.stderr.read()
    assert code == 4
    assert "store.directory" in said
