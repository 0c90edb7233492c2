# SPDX-License-Identifier: Apache-2.0
"""The agent under test: the real one, in its own directories, asked through its own API."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gpu_checks.target import TargetError, cpu_seconds, end_with_us, wait_until
from hotstage.cli.client import AgentClient
from hotstage.errors import HotstageError

START_SECONDS = 20.0
ATTACH_SECONDS = 10.0
STOP_SECONDS = 10.0
_SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Series = dict[tuple[tuple[str, str], ...], float]


@dataclass
class Agent:
    """A running agent; `pid` is its process."""

    process: subprocess.Popen[bytes]
    client: AgentClient
    url: str

    @property
    def pid(self) -> int:
        return self.process.pid

    def get(self, path: str) -> Any:
        return self.client.get(path)

    def coverage(self) -> Any:
        return self.client.get("/v1/coverage")

    def counts(self, pid: int) -> Counter[str]:
        """Calls of one process by name, as counted in the kernel until now."""
        by_pid = self.coverage()["calls"]["by_pid"].get(str(pid), {})
        return Counter({name: each["counted"] for name, each in by_pid.items()})

    def library(self, pid: int, kind: str = "libcuda") -> Any:
        """The coverage of one library in a process; None while it is not known."""
        for process in self.coverage()["processes"]:
            if process["pid"] == pid:
                return next((each for each in process["libraries"] if each["kind"] == kind), None)
        return None

    def wait_attached(self, pid: int, kind: str = "libcuda") -> Any:
        """Until the library of the process is attached. Raises TargetError with the reason."""

        def attached() -> Any:
            found = self.library(pid, kind)
            if found and found["state"] == "failed":
                raise TargetError(f"{kind} of process {pid} cannot be attached: {found['reason']}")
            return found if found and found["since_ns"] is not None else None

        return wait_until(attached, f"{kind} of process {pid} attached", ATTACH_SECONDS)

    def metric(self, name: str) -> Series:
        """Every series of one metric by its sorted labels."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return {
            tuple(sorted(_LABEL.findall(found["labels"] or ""))): float(found["value"])
            for found in _SAMPLE.finditer(text)
            if found["name"] == name
        }

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)


@contextmanager
def running_agent(
    environment: Mapping[str, str], log: IO[bytes], settings: Mapping[str, str] | None = None
) -> Iterator[Agent]:
    """An agent from its start to its end. `settings` are `HOTSTAGE_…` variables. Raises TargetError."""
    with tempfile.TemporaryDirectory(prefix="hotstage-gpu-") as directory:
        folder, port = Path(directory), _free_port()
        config = folder / "empty.toml"
        config.touch()
        own = {
            "HOTSTAGE_CONFIG": str(config),
            "HOTSTAGE_HTTP_LISTEN": f"127.0.0.1:{port}",
            "HOTSTAGE_HTTP_SOCKET": str(folder / "agent.sock"),
            "HOTSTAGE_STORE_DIRECTORY": str(folder / "state"),
            "HOTSTAGE_PAGE_PATH": str(folder / "breakers"),
            # What is counted to the last call must not be let go for its price.
            "HOTSTAGE_GOVERNOR_ENABLED": "false",
            "HOTSTAGE_PROBES_TIER": "T2",
            **(settings or {}),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "hotstage", "agent"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**environment, **own},
            preexec_fn=end_with_us(),  # noqa: PLW1509  # system calls only, no lock
        )
        url = f"http://127.0.0.1:{port}"
        agent = Agent(process, AgentClient(url=url), url)
        try:
            wait_until(lambda: _is_ready(agent), "the agent ready", START_SECONDS)
            yield agent
        finally:
            _stop(process)


def _is_ready(agent: Agent) -> bool:
    code = agent.process.poll()
    if code is not None:
        raise TargetError(f"the agent ended with {code} at its start: see agent.log")
    try:
        return bool(agent.get("/v1/coverage")["rung"])
    except HotstageError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
