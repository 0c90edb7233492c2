# SPDX-License-Identifier: Apache-2.0
"""Processes of `target/caller.c`: cheap ones by the hundred, or one that calls when it is told to."""

from __future__ import annotations

import select
import subprocess
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).parent / "target/caller.c"


def build_caller(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / "caller"
    subprocess.run(["gcc", "-O2", "-Wall", "-o", built, SOURCE, "-ldl"], check=True, timeout=60)
    return built


class Caller:
    """One process with its libraries open; the symbol is looked up in the first of them."""

    def __init__(
        self,
        program: Path,
        symbol: str,
        count: int,
        *libraries: Path,
        forks: bool = False,
        prefix: Sequence[str] = (),
    ) -> None:
        mode = "fork" if forks else "told"
        command = [*prefix, str(program), mode, str(count), symbol, *map(str, libraries)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.pid = self.process.pid
        self._expect(b"ready\n")

    def call(self, seconds: float = 20.0) -> None:
        """Have it make its calls, and wait for the last."""
        assert self.process.stdin
        self.process.stdin.write(b"\n")
        self._expect(b"done\n", seconds)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()

    def _expect(self, line: bytes, seconds: float = 20.0) -> None:
        assert self.process.stdout
        readable, _, _ = select.select([self.process.stdout], [], [], seconds)
        assert readable, f"the caller said {line!r} within {seconds:g} s"
        assert self.process.stdout.readline() == line
