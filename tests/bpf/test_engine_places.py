# SPDX-License-Identifier: Apache-2.0
"""The engine among containers and privileges: overlay mounts of one image, other roots, fewer rights."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.engine import ProbeEngine

sys.path.insert(0, str(Path(__file__).parent))
from targets import Target, build_library, wait_until

pytestmark = pytest.mark.kernel

FOUR_CAPABILITIES = "+bpf,+perfmon,+sys_ptrace,+dac_read_search"
START = """
import sys
from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.errors import HotstageError
from hotstage.probes.engine import ProbeEngine
engine = ProbeEngine(ProbesConfig(xid=False, driver=False), SystemClock())
try:
    engine.start()
except HotstageError as error:
    sys.exit(f"{error.exit_code} {error.message} | {error.remedy}")
pid = int(sys.argv[1])
mine = [process for process in engine.coverage().processes if process.pid == pid]
states = [library.state for process in mine for library in process.libraries]
print(engine.rung, *states, flush=True)
sys.stdin.readline()
print(engine.totals().by_pid[pid]["cuLaunchKernel"].counted)
engine.close()
"""


@pytest.fixture
def engine() -> Iterator[ProbeEngine]:
    engine = ProbeEngine(ProbesConfig(xid=False, driver=False), SystemClock())
    yield engine
    engine.close()


class Overlay:
    """Two overlay mounts of one image, as two containers have them."""

    def __init__(self, root: Path) -> None:
        self.image = root / "image"
        build_library(self.image)
        self.mounts: list[Path] = []
        for name in ("one", "two"):
            for part in ("upper", "work", "merged"):
                (root / name / part).mkdir(parents=True)
            merged = root / name / "merged"
            options = f"lowerdir={self.image},upperdir={root / name / 'upper'},workdir={root / name / 'work'}"
            subprocess.run(
                ["mount", "-t", "overlay", "overlay", "-o", options, merged], check=True, capture_output=True
            )
            self.mounts.append(merged)

    def close(self) -> None:
        for merged in self.mounts:
            subprocess.run(["umount", "-l", merged], check=True)


@pytest.fixture
def overlay() -> Iterator[Overlay]:
    # an upper directory must not be an overlay itself; /dev/shm never is
    root = Path("/dev/shm/hotstage-overlay-test")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    overlay = Overlay(root)
    yield overlay
    overlay.close()
    shutil.rmtree(root)


def counted(engine: ProbeEngine, pid: int) -> int:
    calls = engine.totals().by_pid.get(pid, {})
    return calls["cuLaunchKernel"].counted if "cuLaunchKernel" in calls else 0


def states(engine: ProbeEngine, pid: int) -> list[str]:
    return [
        lib.state
        for process in engine.coverage().processes
        if process.pid == pid
        for lib in process.libraries
    ]


@pytest.mark.parametrize("late", [False, True], ids=["both at the start", "the second one later"])
def test_one_image_in_two_containers_is_counted_once(
    engine: ProbeEngine, overlay: Overlay, start_target: Callable[..., Target], late: bool
) -> None:
    first, second = start_target(), start_target()
    first.open(overlay.mounts[0] / "libcuda.so.1")
    if not late:
        second.open(overlay.mounts[1] / "libcuda.so.1")
    engine.start()
    if late:
        second.open(overlay.mounts[1] / "libcuda.so.1")
    wait_until(lambda: bool(states(engine, second.pid)), "the second container's library is known")
    first.call("cuLaunchKernel", 101)
    second.call("cuLaunchKernel", 103)
    assert (counted(engine, first.pid), counted(engine, second.pid)) == (101, 103)
    assert sorted(states(engine, first.pid) + states(engine, second.pid)) == ["alias", "attached"]


def test_a_library_in_another_root_is_found_there(
    engine: ProbeEngine, start_target: Callable[..., Target], tmp_path: Path
) -> None:
    library = build_library(tmp_path / "hidden")
    target = start_target("unshare", "-m", "--")
    engine.start()
    target.tell("run", ["mount", "-t", "tmpfs", "none", "/mnt"])
    target.tell("run", ["cp", str(library), "/mnt/libcuda.so.1"])
    target.open(Path("/mnt/libcuda.so.1"))
    assert not Path("/mnt/libcuda.so.1").exists()
    wait_until(lambda: states(engine, target.pid) == ["attached"], "the hidden library is attached", 0.5)
    target.call("cuLaunchKernel", 89)
    assert counted(engine, target.pid) == 89


def test_four_capabilities_are_enough(start_target: Callable[..., Target], tmp_path: Path) -> None:
    target = start_target()
    target.open(build_library(tmp_path))
    command = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps", FOUR_CAPABILITIES]
    command += ["--ambient-caps", FOUR_CAPABILITIES, sys.executable, "-c", START, str(target.pid)]
    agent = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=readable()
    )
    assert agent.stdout and agent.stdin
    assert agent.stdout.readline() == "S attached\n"
    target.call("cuLaunchKernel", 61)
    counted_there, _ = agent.communicate("\n", timeout=20)
    assert counted_there == "61\n"


def test_without_privileges_the_start_says_what_is_missing() -> None:
    command = ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c", START, "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=readable())
    assert done.returncode == 1
    assert done.stderr.startswith("5 the kernel refuses BPF programs to this user | run as root")


def readable() -> dict[str, str]:
    """Another user may not be allowed to write bytecode here."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
