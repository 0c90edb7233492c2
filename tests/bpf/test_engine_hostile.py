# SPDX-License-Identifier: Apache-2.0
"""A file system that stops answering costs its own library and nothing else."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.engine import ProbeEngine

sys.path.insert(0, str(Path(__file__).parent))
from targets import Target, build_library, driver_of, wait_until

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="this kernel has no FUSE"),
]


class Mount:
    """The hostile file system, mounted; `freeze` makes it hang."""

    def __init__(self, mountpoint: Path, library: Path) -> None:
        mountpoint.mkdir()
        self.library = mountpoint / library.name
        command = [
            sys.executable,
            str(Path(__file__).with_name("hostile_mount.py")),
            str(mountpoint),
            str(library),
        ]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._expect("ready")

    def freeze(self) -> None:
        self._say()
        self._expect("frozen")

    def end(self) -> None:
        if self._server.poll() is None:
            self._say()
        self._server.communicate(timeout=10)

    def _say(self) -> None:
        assert self._server.stdin
        self._server.stdin.write("\n")
        self._server.stdin.flush()

    def _expect(self, word: str) -> None:
        assert self._server.stdout
        assert self._server.stdout.readline().strip() == word


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    mount = Mount(tmp_path / "mount", build_library(tmp_path / "served"))
    yield mount
    mount.end()


def test_a_frozen_mount_is_given_up_and_the_others_are_attached_meanwhile(
    mount: Mount, tmp_path: Path
) -> None:
    victim, good, late = Target(), Target(), Target()
    engine = ProbeEngine(ProbesConfig(xid=False, driver=False, discovery_deadline_seconds=2.0), SystemClock())
    try:
        victim.open(mount.library)
        good.open(build_library(tmp_path / "good"))
        mount.freeze()
        engine.start()
        assert engine.start_seconds is not None and engine.start_seconds <= 3.0
        found = driver_of(engine, good.pid)
        assert found is not None and found.state == "attached"
        late.open(build_library(tmp_path / "late", salt="late"))
        delay = wait_until(
            lambda: driver_of(engine, late.pid) is not None, "the late library is attached", 0.5
        )
        print(f"attached after {delay * 1000:.0f} ms beside a frozen mount")
        good.call("cuLaunchKernel", 47)
        assert engine.totals().by_pid[good.pid]["cuLaunchKernel"].counted == 47

        wait_until(lambda: driver_of(engine, victim.pid) is not None, "the frozen library is given up", 5.0)
        given_up = driver_of(engine, victim.pid)
        assert given_up is not None
        assert (given_up.state, given_up.reason) == ("failed", "no answer within 2 s")
        health = engine.coverage().discovery
        assert (health.stuck, health.abandoned) == (1, 1)
        mount.end()
        wait_until(lambda: engine.coverage().discovery.stuck == 0, "the hanging look-up came back")
        began = time.monotonic()
    finally:
        for target in (victim, good, late):
            target.end()
        engine.close()
    assert time.monotonic() - began < 2.0
