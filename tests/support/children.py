# SPDX-License-Identifier: Apache-2.0
"""Processes that a test starts and ends: pipes, a log each, ended by their pid even while stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

from support.monitoring import end


def started(
    stack: ExitStack, directory: Path, name: str, command: list[str], **variables: str
) -> subprocess.Popen[str]:
    """One process with pipes, its standard error in a file; ended with the stack, even while stopped."""
    with (directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **variables},
        )
    stack.callback(_end, process)
    return process


def said(process: subprocess.Popen[str], key: str) -> str:
    """One field of the line of JSON that the process says next."""
    assert process.stdout
    return str(json.loads(process.stdout.readline())[key])


def do(process: subprocess.Popen[str], word: str) -> None:
    """Have a process that obeys words do something; it says the word back when it does."""
    assert process.stdin and process.stdout
    print(word, file=process.stdin, flush=True)
    answer = process.stdout.readline().strip()
    assert answer == word, f"told {word!r}, it said {answer!r}"


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
    end(process)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
