# SPDX-License-Identifier: Apache-2.0
"""A fallen child is started again after a growing pause; an essential one that cannot run ends all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hotstage.cli.supervisor import Child, Supervisor

DEADLINE_SECONDS = 10.0


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.fixture
def supervisor(clock):
    made = Supervisor(clock)
    yield made
    made.stop()


def wait_for_end(child: Child) -> None:
    assert child.process is not None
    child.process.wait(DEADLINE_SECONDS)


def test_a_fallen_child_comes_back_after_its_pause(supervisor, clock):
    child = Child("c", python("raise SystemExit(1)"), {})
    supervisor.start(child)
    first = child.process
    wait_for_end(child)
    assert supervisor.watch() is None
    clock.advance(0.5)
    supervisor.watch()
    assert child.process is first
    clock.advance(0.6)
    supervisor.watch()
    assert child.process is not first


def test_the_pause_grows_with_each_fall(supervisor, clock):
    child = Child("c", python("raise SystemExit(1)"), {})
    supervisor.start(child)
    pauses = []
    for _ in range(4):
        wait_for_end(child)
        supervisor.watch()
        pauses.append((child.restart_at_ns - clock.monotonic_ns()) / 1e9)
        clock.advance(60)
        supervisor.watch()
    assert pauses == [1, 2, 4, 8]


@pytest.mark.parametrize("code", [2, 4, 5])
def test_an_essential_child_that_cannot_run_ends_all(supervisor, code):
    child = Child("agent", python(f"raise SystemExit({code})"), {}, essential=True)
    supervisor.start(child)
    wait_for_end(child)
    assert supervisor.watch() == code


def test_stop_ends_the_last_started_first_and_leaves_nobody(clock):
    supervisor = Supervisor(clock)
    children = [Child(name, python("import time; time.sleep(60)"), {}) for name in "ab"]
    for child in children:
        supervisor.start(child)
    assert supervisor.pid("a") == children[0].process.pid
    began = time.monotonic()
    supervisor.stop()
    assert time.monotonic() - began < DEADLINE_SECONDS
    assert [child.process.returncode for child in children] == [-15, -15]
    assert supervisor.pid("a") is None


def test_children_end_with_a_supervisor_that_was_killed():
    code = (
        "import sys, time\n"
        "from hotstage.cli.supervisor import Child, Supervisor\n"
        "from hotstage.clock import SystemClock\n"
        "supervisor = Supervisor(SystemClock())\n"
        "supervisor.start(Child('c', [sys.executable, '-c', 'import time; time.sleep(60)'], {}))\n"
        "print(supervisor.pid('c'), flush=True)\n"
        "time.sleep(60)\n"
    )
    killed = subprocess.Popen(python(code), stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    orphan = int(killed.stdout.readline())
    killed.kill()
    killed.wait(DEADLINE_SECONDS)
    killed.stdout.close()
    until = time.monotonic() + DEADLINE_SECONDS
    while is_running(orphan) and time.monotonic() < until:
        time.sleep(0.02)
    was_left = is_running(orphan)
    if was_left:
        os.kill(orphan, signal.SIGKILL)
    assert not was_left, "waited for the child of a killed supervisor to end"


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
