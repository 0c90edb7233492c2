# SPDX-License-Identifier: Apache-2.0
"""Explorer processes for tests: started on a free port, ended by SIGTERM with 0."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Served:
    process: subprocess.Popen[str]
    address: str


@contextmanager
def serving(*arguments: str) -> Iterator[Served]:
    """`python -m hotstage_explorer` with these arguments; one that a test has killed need not end well."""
    command = [sys.executable, "-m", "hotstage_explorer", "--listen", "127.0.0.1:0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        said = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", said)
        assert found, f"the explorer said {said!r} instead of its address"
        try:
            yield Served(process, found.group())
        finally:
            was_running = process.poll() is None
            process.terminate()
            code = process.wait(10)
        assert code in (0, -signal.SIGKILL) or not was_running


@contextmanager
def explorer_on(*arguments: str) -> Iterator[str]:
    """Its address."""
    with serving(*arguments) as served:
        yield served.address
