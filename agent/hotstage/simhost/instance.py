# SPDX-License-Identifier: Apache-2.0
"""One server process as its host sees it: how it is started, what it is told, what it answers."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hotstage.errors import PeerError
from hotstage.simhost.annotations import Mode
from hotstage.simhost.build import StubPaths
from hotstage.simhost.gpus import GPUS
from hotstage.simhost.options import HostOptions
from hotstage.simhost.server import ServerConfig

MODEL = "sim-vlm-7b"
END_SECONDS = 2.0


@dataclass(slots=True)
class Instance:
    """One server process and its ends of the pipes."""

    name: str
    index: int
    process: subprocess.Popen[str]
    report: Path
    pid: int = 0
    health_port: int = 0
    is_reported_dead: bool = False

    def send(self, line: str) -> None:
        try:
            print(line, file=_pipe(self.process.stdin), flush=True)
        except BrokenPipeError:
            return  # it has died; the tick says so

    def answer(self, event: str, seconds: float) -> dict[str, Any]:
        """The next line, which must be `event`; raises PeerError if it is not there in time."""
        stream = _pipe(self.process.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            line = stream.readline() if selector.select(seconds) else ""
        message: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        if message.get("event") != event:
            raise PeerError(f"the simulated server {self.name} did not say {event!r} within {seconds:g} s")
        return message

    def close(self) -> None:
        """End the process: its input is closed already, then by force."""
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        _pipe(self.process.stdout).close()

    def close_input(self) -> None:
        """Ask it to end."""
        with suppress(BrokenPipeError):  # it has died, and a command to it was still buffered
            _pipe(self.process.stdin).close()


def start_instance(index: int, options: HostOptions, stubs: StubPaths) -> Instance:
    """Start the server of one GPU; `ready` is still to come."""
    name, folder = f"i-{index}", stubs.folder
    config = ServerConfig(
        instance=name,
        index=index,
        instances=len(GPUS),
        model=MODEL,
        seed=options.seed,
        library=str(stubs.server),
        report=str(folder / f"report-{name}.json"),
        host_pid=os.getpid(),
        # Two runs of one seed on one machine are not each other's requests.
        tag=f"{os.getpid():x}",
        calls_scale=options.calls_scale,
        seconds=options.seconds,
        faults=options.faults,
        mode=options.mode,
        gpus=options.gpus,
    )
    config.write(folder / f"config-{name}.json")
    server = [sys.executable, "-m", "hotstage.simhost.server"]
    process = subprocess.Popen(
        [*_launcher(options.mode), *server, str(folder / f"config-{name}.json")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": _visible(index, options.gpus)},
    )
    return Instance(name, index, process, Path(config.report))


def _launcher(mode: Mode) -> list[str]:
    """NVTX ranges need an injection library, which its launcher names in the environment."""
    return [sys.executable, "-m", "hotstage_marks.nvtx"] if mode is Mode.nvtx else []


def _visible(index: int, gpus: int) -> str:
    """An instance's own GPU is its last one: ordinals say nothing across processes."""
    return ",".join(GPUS[(index + 1 + offset) % len(GPUS)].uuid for offset in range(-gpus, 0))


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise ValueError("the server was started without pipes")
    return stream
