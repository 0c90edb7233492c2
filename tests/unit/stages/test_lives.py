# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

import pytest

from hotstage.stages import lives as module
from hotstage.stages.lives import Lives, process_is_alive


@pytest.fixture
def proc(tmp_path):
    def make(pid, state):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a ) Z b) {state} 1 1 1")

    make(10, "S")
    make(11, "Z")
    return tmp_path


@pytest.fixture
def lives():
    lives = Lives()
    yield lives
    lives.close()


@pytest.fixture
def child():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child
        child.kill()


@pytest.mark.parametrize(("pid", "alive"), [(10, True), (11, False), (12, False)])
def test_a_process_lives_unless_it_is_gone_or_a_zombie(proc, pid, alive):
    assert process_is_alive(pid, proc) is alive


def test_a_process_that_ends_is_dead_while_nobody_has_reaped_it_and_afterwards(lives, child):
    assert lives(child.pid)
    child.stdin.close()
    _await_end(child)
    assert not lives(child.pid)
    child.wait(5)
    assert not lives(child.pid)


def test_more_processes_than_descriptors_are_still_told_apart(lives, child, monkeypatch):
    monkeypatch.setattr(module, "_HELD_MAX", 1)
    assert lives(child.pid) and lives(1) and lives(child.pid)
    assert len(lives._held) == 1


def _await_end(child):
    """Without reaping."""
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
