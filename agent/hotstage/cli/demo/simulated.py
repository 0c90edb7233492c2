# SPDX-License-Identifier: Apache-2.0
"""The simulated host as a child process: its line protocol, every wait with a deadline."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotstage.clock import Clock
from hotstage.errors import ConfigError, HotstageError, PeerError

START_SECONDS = 60.0
STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class SimulatedHost:
    """What the simulated host said before traffic: instance pids, and where its libraries are."""

    process: subprocess.Popen[str]
    clock: Clock
    pids: tuple[int, ...]
    nvml_directory: Path
    health_ports: Mapping[str, int] = field(default_factory=dict)
    """Of each instance's own `/health`, by its name."""

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        seed: int,
        clock: Clock,
        faults: Sequence[str] = (),
        faults_file: Path | None = None,
        options: Sequence[str] = (),
    ) -> SimulatedHost:
        """Build the stub libraries, start the server's instances, and wait until they wait for `go`.

        `options` are further ones of `hotstage.simhost.host`. Raises HotstageError with the host's own words
        when it refuses a fault or cannot start.
        """
        command = [
            sys.executable,
            "-m",
            "hotstage.simhost.host",
            "--directory",
            str(directory),
            "--seed",
            str(seed),
            *options,
        ]
        for fault in faults:
            command += ["--fault", fault]
        if faults_file is not None:
            command += ["--faults", str(faults_file)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        pids: list[int] = []
        health_ports: dict[str, int] = {}
        nvml = directory
        try:
            events = _events(process, clock, START_SECONDS, until="waiting")
        except HotstageError:
            cls(process, clock, (), directory).end()
            raise
        for event in events:
            if event["event"] == "libraries":
                nvml = Path(event["libnvidia_ml"]).parent
            elif event["event"] == "instance":
                pids.append(int(event["pid"]))
                health_ports[event["instance"]] = int(event["health_port"])
        return cls(process, clock, tuple(pids), nvml, health_ports)

    def health(self, instance: str) -> str:
        """What the instance says of itself to a load balancer: `200 OK`, or why it says nothing."""
        connection = http.client.HTTPConnection("127.0.0.1", self.health_ports.get(instance, 0), timeout=1.0)
        try:
            connection.request("GET", "/health")
            answer = connection.getresponse()
            return f"{answer.status} {answer.reason}"
        except (OSError, http.client.HTTPException) as error:
            return f"no answer: {error}"
        finally:
            connection.close()

    def go(self) -> None:
        """Start traffic; faults count from here."""
        self._say("go")

    def stop(self) -> dict[str, Any]:
        """End traffic, let what is in flight finish, and return the truth. Instances stay until `end`."""
        self._say("stop")
        for event in _events(self.process, self.clock, STOP_SECONDS, until="stopped"):
            if event["event"] == "stopped":
                truth: dict[str, Any] = json.loads(Path(event["truth"]).read_text(encoding="utf-8"))
                return truth
        raise PeerError("the simulated host ended without its truth")

    def news(self) -> list[Mapping[str, Any]]:
        """Events since the last look: faults that began or ended, warnings. Does not wait.

        Raises PeerError when the host has ended by itself: there is no traffic and no truth any more.
        """
        code = self.process.poll()
        if code is not None:
            raise PeerError(f"the simulated host has ended with code {code}")
        stdout = self.process.stdout
        if stdout is None or not select.select([stdout], [], [], 0)[0]:
            return []
        lines = os.read(stdout.fileno(), 65_536).splitlines()  # one write of the host is whole lines
        return [json.loads(line) for line in lines]

    def end(self) -> None:
        """Let the instances go, and wait until the host process has ended."""
        if self.process.poll() is None:
            with contextlib.suppress(PeerError):  # it may go between the look and the word
                self._say("exit")
        if self.process.stdin:
            with contextlib.suppress(BrokenPipeError):  # a word to one that has died is still buffered
                self.process.stdin.close()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_SECONDS)
        if self.process.stdout:
            self.process.stdout.close()

    def _say(self, word: str) -> None:
        if self.process.stdin is None:
            raise PeerError("the simulated host has no standard input")
        try:
            self.process.stdin.write(f"{word}\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise PeerError(f"the simulated host has ended with code {self.process.poll()}") from error


_PLANNED = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from hotstage.errors import ConfigError
from hotstage.simhost.faults import parse_spec, read_file
file, *specs = sys.argv[1:]
try:
    faults = [*map(parse_spec, specs), *(read_file(Path(file)) if file else ())]
    print(json.dumps({"faults": [asdict(fault) for fault in faults]}))
except ConfigError as error:
    print(json.dumps({"message": error.message, "remedy": error.remedy}))
"""


def planned_faults(specs: Sequence[str], file: Path | None) -> list[dict[str, Any]]:
    """Fields of each fault as the host understands it, asked in a process of its own: it does not know who
    watches it. Raises ConfigError with the host's own words.
    """
    if not specs and file is None:
        return []
    command = [sys.executable, "-c", _PLANNED, str(file or ""), *specs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    if done.returncode:
        raise HotstageError(f"the faults cannot be read: {done.stderr.strip()[-400:]}")
    answer = json.loads(done.stdout)
    if "message" in answer:
        raise ConfigError(answer["message"], remedy=answer["remedy"])
    faults: list[dict[str, Any]] = answer["faults"]
    return faults


def _events(
    process: subprocess.Popen[str], clock: Clock, seconds: float, *, until: str
) -> list[Mapping[str, Any]]:
    """Events up to and with `until`. HotstageError when the process ends first, PeerError when it is late."""
    deadline_ns = clock.monotonic_ns() + round(seconds * 1e9)
    events: list[Mapping[str, Any]] = []
    if process.stdout is None:
        raise PeerError("the simulated host has no standard output")
    descriptor, said = process.stdout.fileno(), b""
    while not events or events[-1]["event"] != until:
        left_seconds = (deadline_ns - clock.monotonic_ns()) / 1e9
        if left_seconds <= 0 or not select.select([descriptor], [], [], left_seconds)[0]:
            raise PeerError(f"waited {seconds:.0f} s for the simulated host to say `{until}`")
        data = os.read(descriptor, 65_536)  # not readline: what it buffers, select does not see
        if not data:
            code = process.wait(STOP_SECONDS)
            if code == ConfigError.exit_code:
                raise ConfigError(
                    "the simulated host refuses what it was asked for, with the reason above",
                    remedy="`hotstage demo --help` lists the faults and how a SPEC is written",
                )
            raise HotstageError(
                f"the simulated host ended with code {code} before `{until}`; it says why above"
            )
        *lines, said = (said + data).split(b"\n")
        events += [json.loads(line) for line in lines]
    return events
