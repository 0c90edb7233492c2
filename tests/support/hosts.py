# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one kernel: each has its own processes and libraries, and an agent that sees only those.

An agent reads a `proc_root` that holds only the processes of its host, and probes only the files that they
have mapped: every host's libraries, the marks library too, are copies. What differs from real hosts: one
kernel, one clock.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

import hotstage_marks
from hotstage.cli.client import AgentClient
from hotstage.cli.demo.layout import DemoLayout, lay_out
from hotstage.cli.demo.simulated import SimulatedHost
from hotstage.clock import SystemClock
from hotstage.config.render import toml
from hotstage.config.settings import DevicesConfig
from hotstage.errors import HotstageError
from support.children import started
from support.monitoring import wait_for

PROGRAMS = Path(__file__).resolve().parents[1] / "integration/programs"
_OF_THE_HOST = ("stat", "meminfo", "pressure", "cgroups", "self", "sys")
_ATTACH_SECONDS = 60.0


@dataclass
class Host:
    """One host. `proc` is what its agent takes for /proc."""

    name: str
    directory: Path
    proc: Path
    marks: Path
    layout: DemoLayout
    simulated: SimulatedHost | None = None

    @property
    def target(self) -> str:
        """host:port of the agent's `/metrics`, and the label `instance` in Prometheus."""
        return self.layout.config.http.listen

    @property
    def client(self) -> AgentClient:
        return AgentClient(socket_path=self.layout.config.http.socket)

    def show(self, pid: int) -> None:
        """The process is one of this host's."""
        (self.proc / str(pid)).symlink_to(f"/proc/{pid}")

    def run(self, stack: ExitStack, name: str, *words: str) -> subprocess.Popen[str]:
        """A server of this host, by a program of the tests; it marks with this host's copy."""
        command = [sys.executable, str(PROGRAMS / f"{name}.py"), *words]
        process = started(stack, self.directory, name, command, PYTHONPATH=str(self.marks))
        assert process.stdout and process.stdout.readline() == "ready\n"
        self.show(process.pid)
        return process

    def serve(self, stack: ExitStack, *faults: str, seed: int) -> SimulatedHost:
        """The simulated servers, ready for traffic."""
        with _environment(PYTHONPATH=str(self.marks)):
            self.simulated = SimulatedHost.start(
                self.directory / "host", seed=seed, faults=faults, faults_file=None, clock=SystemClock()
            )
        stack.callback(self.simulated.end)
        for pid in self.simulated.pids:
            self.show(pid)
        return self.simulated

    def watch(self, stack: ExitStack, **sections: Any) -> None:
        """Start the agent; `sections` are settings that differ, `breakers={"max_breakers": 2000}`."""
        config = msgspec.to_builtins(self.layout.config)
        for section, settings in {"probes": {}, **sections}.items():
            config[section] |= settings
        config["probes"] |= {"proc_root": str(self.proc), "xid": False}
        self.layout.config_file.write_text(toml(config), encoding="utf-8")
        command = [sys.executable, "-m", "hotstage", "--config", str(self.layout.config_file), "agent"]
        started(stack, self.directory, "agent", command)

    def wait_attached(self, kind: str) -> None:
        """Until every process of the host that has a library of this kind is counted."""
        pids = [int(entry.name) for entry in self.proc.iterdir() if entry.name.isdecimal()]
        wait_for(lambda: self._attached(kind) == set(pids), f"{kind} to be attached on {self.name}",
                 _ATTACH_SECONDS)  # fmt: skip

    def _attached(self, kind: str) -> set[int]:
        try:
            processes = self.client.get("/v1/coverage")["processes"]
        except HotstageError:
            return set()
        return {
            process["pid"]
            for process in processes
            if any((lib["kind"], lib["state"]) == (kind, "attached") for lib in process["libraries"])
        }


def new_host(directory: Path, name: str) -> Host:
    """A host without processes; its agent does not run yet."""
    folder = directory / name
    proc, marks, nvml = folder / "proc", folder / "marks", folder / "no-nvml"
    for made in (folder, proc, marks, nvml):
        made.mkdir()
    for shared in _OF_THE_HOST:
        (proc / shared).symlink_to(f"/proc/{shared}")
    package = Path(hotstage_marks.__file__).parent
    shutil.copytree(
        package, marks / package.name, ignore=shutil.ignore_patterns("native", "examples", "__py*")
    )
    layout = lay_out(folder, loader="auto", nvml_directory=nvml)
    config = msgspec.structs.replace(layout.config, devices=DevicesConfig(enabled=False))
    return Host(name, folder, proc, marks, replace(layout, config=config))


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
