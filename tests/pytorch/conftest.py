# SPDX-License-Identifier: Apache-2.0
"""Real, unmodified PyTorch under real probes; `make test-torch` installs the wheels.

Nothing here is part of `make test`: they take several GB. What they prove is proven there on small libraries.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
DEADLINE_SECONDS = 60.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.torch)
            item.add_marker(pytest.mark.kernel)


class Program:
    """A Python program with PyTorch in it: a line of JSON in, a line of JSON out."""

    def __init__(self, python: Path, source: Path, *arguments: object, **environment: str) -> None:
        self.process = subprocess.Popen(
            [python, source, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.pid = self.process.pid
        self.hello = self._answer("its start")

    def do(self, verb: str, *arguments: Any) -> Any:
        assert self.process.stdin
        self.process.stdin.write(json.dumps([verb, *arguments]) + "\n")
        self.process.stdin.flush()
        return self._answer(verb)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()

    def _answer(self, what: str) -> Any:
        assert self.process.stdout
        ready, _, _ = select.select([self.process.stdout], [], [], DEADLINE_SECONDS)
        assert ready, f"the program with PyTorch answered {what} within {DEADLINE_SECONDS:g} s"
        line = self.process.stdout.readline()
        assert line, f"the program with PyTorch ended during {what}"
        return json.loads(line)


@pytest.fixture(scope="session")
def torch_python() -> Path:
    named = os.environ.get("HOTSTAGE_TORCH_PYTHON")
    if not named:
        pytest.skip("HOTSTAGE_TORCH_PYTHON names no interpreter that has PyTorch: run `make test-torch`")
    return Path(named).absolute()


@pytest.fixture
def start_program(torch_python: Path) -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def start(source: str, *arguments: object, **environment: str) -> Program:
        started.append(Program(torch_python, PROGRAMS / source, *arguments, **environment))
        return started[-1]

    yield start
    for program in started:
        program.close()
