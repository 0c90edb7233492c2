# SPDX-License-Identifier: Apache-2.0
"""One run of the simulated host under the real agent behind real probes: what is told of its requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.integration.conftest import free_tcp_port, wait_until
from tests.integration.whole_agent import WholeAgent

from hotstage.cli.demo.simulated import SimulatedHost
from hotstage.clock import SystemClock

ENOUGH = 60
MIN_SAMPLES = 5
"""Of quantiles here: a run of seconds has no twenty of each class."""
SETTINGS = {
    "HOTSTAGE_FRAME_QUANTILE_MIN_SAMPLES": str(MIN_SAMPLES),
    "HOTSTAGE_FRAME_HEAT_WEIGHT": "token_equivalents",
}


@dataclass(frozen=True)
class Ran:
    """The agent, which has told of all requests, and the truth; from CLOCK_MONOTONIC to wall time."""

    agent: WholeAgent
    truth: dict[str, Any]
    wall_offset_ns: int


@pytest.fixture(scope="package")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    directory, clock = tmp_path_factory.mktemp("requests"), SystemClock()
    host = SimulatedHost.start(directory / "host", seed=4722, faults=(), faults_file=None, clock=clock)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in SETTINGS.items():
            environment.setenv(name, value)
        agent = WholeAgent(directory / "agent", free_tcp_port())
    try:
        wait_until(agent.is_ready, "the agent's readiness")
        wait_until(lambda: _is_attached(agent, host.pids), "the probes of all instances")
        host.go()
        wait_until(lambda: _finished(agent) >= ENOUGH, f"{ENOUGH} finished requests")
        truth = host.stop()
        whole = truth["requests"]["finished"]
        wait_until(lambda: _finished(agent) >= whole, "the last of the truth's requests")
        wait_until(lambda: _in_the_frame(agent) >= whole, "the frame with the last of them")
        yield Ran(agent, truth, clock.wall_ns_of(0))
    finally:
        agent.process.kill()
        agent.process.wait(10)
        agent.process.stderr.close()
        host.end()


def _asked(agent: WholeAgent, path: str) -> Any:
    return json.loads(agent.get(path)[1])


def _is_attached(agent: WholeAgent, pids: tuple[int, ...]) -> bool:
    libraries = [
        (process["pid"], library["kind"])
        for process in _asked(agent, "/v1/coverage")["processes"]
        for library in process["libraries"]
        if library["state"] == "attached"
    ]
    return all((pid, kind) in libraries for pid in pids for kind in ("marks", "libcuda"))


def _finished(agent: WholeAgent) -> int:
    return int(_asked(agent, "/v1/requests?limit=1")["totals"]["finished"])


def _in_the_frame(agent: WholeAgent) -> int:
    return sum(point["requests"] for point in _asked(agent, "/v1/heat")["points"])
