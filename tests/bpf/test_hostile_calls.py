# SPDX-License-Identifier: Apache-2.0
"""Programs that leave calls in every way there is: what was counted and what is still open is what they made,
to the last call, or the difference has the name of a loss.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.bpf.conftest import DEADLINE_SECONDS, PREBUILT, SOURCES, Build, Probes

from hotstage.probes.loader.base import Rung
from hotstage.probes.totals import TotalsBook

LAUNCH, WAIT = "cuLaunchKernel", "cuStreamSynchronize"
SCENES = {
    "forks": 1000,
    "fork_inside": 20,
    "vfork": 20,
    "shared_memory": 20,
    "killed": 20,
    "faulted": 5,
    "exec_inside": 10,
    "exec_beside": 10,
    "exit_inside": 10,
    "thread_ends_inside": 50,
    "threads_die": 500,
    "signals": 20,
    "coroutines": 20,
    "coroutine_left_inside": 20,
    "deep": 20,
    "escapes": 20,
    "tid_comes_back": 1,
    "tid_comes_back_elsewhere": 1,
}
"""How often each is played."""
KEPT_FRAMES = 5
DEEP, ESCAPE = 16, 12
"""Calls within each other, of them so many with a frame: those of `deep` return, `escapes` leaves all."""


@pytest.fixture(scope="session")
def hostile(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = (PREBUILT or tmp_path_factory.mktemp("hostile")) / "hostile"
    if not built.exists():
        command = ["gcc", "-O1", "-fexceptions", "-pthread", "-o", built, SOURCES / "hostile.c", build.cuda]
        subprocess.run([*command, f"-Wl,-rpath,{build.cuda.parent}"], check=True)
    return built


@dataclass(frozen=True)
class Made:
    launches: int
    waits: int
    status: int
    """Of the child that ended last."""
    unwound: int
    """Frames whose ends were carried out, of threads that were cancelled inside a call."""
    pids: list[int]


def play(hostile: Path, scene: str, libraries: Path | None = None) -> Made:
    """`libraries`: where the program's library is taken from; None: where the probes are."""
    environment = {"LD_LIBRARY_PATH": str(libraries)} if libraries else {}
    times = str(SCENES.get(scene, 1))
    ended = subprocess.run(
        [hostile, scene, times],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert ended.returncode == 0, f"{scene}: ended with {ended.returncode}"
    first, *pids = ended.stdout.splitlines()
    return Made(*map(int, first.split()), pids=sorted({int(pid) for pid in pids}))


@pytest.mark.parametrize("scene", SCENES)
def test_counted_and_open_is_what_was_made(probes: Probes, hostile: Path, scene: str) -> None:
    before = probes.losses()
    made = play(hostile, scene)
    launches, waits = counted(probes, made.pids)
    lost = {name: count - before.get(name, 0) for name, count in probes.losses().items()}
    probes.maps.forget_processes(made.pids)
    times, is_session = SCENES[scene], probes.rung is Rung.SESSION
    assert launches == made.launches
    assert waits == made.waits - uncounted(scene, is_session)
    expected = {
        # A child returns from a call that its parent entered: no call of its own.
        "fork_inside": {"unmatched_returns": times},
        # The program before the exec will not return; the one after it says so by its first call.
        "exec_inside": {"stale_frames": times},
        "exec_beside": {"stale_frames": times},
        "signals": {"stale_frames": times},
        "coroutine_left_inside": {"stale_frames": times},
        "deep": {
            "lost_frames": times * (DEEP - KEPT_FRAMES),
            "unmatched_returns": 0 if is_session else times * (DEEP - KEPT_FRAMES),
        },
        "escapes": {"lost_frames": times * (ESCAPE - KEPT_FRAMES), "stale_frames": times * KEPT_FRAMES},
        "tid_comes_back": {"stale_frames": 1},
        "tid_comes_back_elsewhere": {"lost_frames": 1},
    }
    assert {name: count for name, count in lost.items() if count} == {
        name: count for name, count in expected.get(scene, {}).items() if count
    }


def uncounted(scene: str, is_session: bool) -> int:
    """Calls that only `lost_frames` knows of; on rung S the link keeps the start of those that return."""
    lost = {"escapes": ESCAPE - KEPT_FRAMES, "tid_comes_back_elsewhere": 1}
    if not is_session:
        lost["deep"] = DEEP - KEPT_FRAMES
    return SCENES[scene] * lost.get(scene, 0)


def counted(probes: Probes, pids: list[int]) -> tuple[int, int]:
    """Launches and waits that these processes made, those in flight included."""
    sums = TotalsBook().sum(*probes.maps.calls(), probes.maps.threads(), 0).by_pid
    launches, waits = (
        sum(sums[pid][name].counted for pid in pids if name in sums.get(pid, {})) for name in (LAUNCH, WAIT)
    )
    return launches, waits


def test_what_a_return_probe_of_the_kernel_does_to_a_program(
    probes: Probes, hostile: Path, build: Build, tmp_path: Path
) -> None:
    """bpf/README.md warns of both; where they no longer hold, it is to be told so there."""
    shutil.copy(build.cuda, tmp_path)  # another inode, which no probe is in
    assert play(hostile, "coroutine_resumed_inside", tmp_path).status == 0
    assert play(hostile, "cancelled_inside", tmp_path).unwound == 1

    resumed = play(hostile, "coroutine_resumed_inside")
    assert os.WIFSIGNALED(resumed.status) and os.WTERMSIG(resumed.status) == signal.SIGILL
    cancelled = play(hostile, "cancelled_inside")
    assert cancelled.unwound == 0
    for made in (resumed, cancelled):
        assert counted(probes, made.pids) == (made.launches, made.waits)
        probes.maps.forget_processes(made.pids)
