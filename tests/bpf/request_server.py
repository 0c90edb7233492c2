# SPDX-License-Identifier: Apache-2.0
"""`target/requests.c` as a process: a server of requests whose states follow from their numbers."""

from __future__ import annotations

import select
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.bpf.conftest import SOURCES, Build, Probes, Workload

FIRST = 100_000
"""The hash of request 0."""


class Server(Workload):
    def __init__(self, path: Path, probes: Probes) -> None:
        super().__init__(path)
        self.probes = probes

    def unblock(self) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"x")
        self.wait("the stuck call's end")

    def has_answered(self) -> bool:
        """Whether what it was told last is done; then its answer is taken."""
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], 0)[0]:
            return False
        self.wait("its answer")
        return True

    def requests(self) -> dict[int, object]:
        """Number → its kernel row, of those in flight."""
        return {int(row["request_hash"]) - FIRST: row for row in self.probes.requests(self.pid)}


def build_server(build: Build, folder: Path) -> Path:
    """What is already in `folder` is taken as it is."""
    program = folder / "requests"
    if program.exists():
        return program
    linked = [build.cuda, build.marks, f"-Wl,-rpath,$ORIGIN:{build.cuda.parent}"]
    command = ["gcc", "-O2", "-Wall", "-pthread", "-o", program, SOURCES / "requests.c", *linked]
    subprocess.run(command, check=True)
    return program


def server_starter(program: Path, stack: ExitStack) -> Callable[[Probes], Server]:
    def start(probes: Probes) -> Server:
        server = Server(program, probes)
        stack.callback(server.close)
        return server

    return start
