# SPDX-License-Identifier: Apache-2.0
"""Many libraries, many processes: attached and let go within the budgets, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from support.driver_library import build_driver, copy_of, every_symbol

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.engine import ProbeEngine

sys.path.insert(0, str(Path(__file__).parent))
from callers import Caller, build_caller
from targets import first_bytes, wait_until

pytestmark = pytest.mark.kernel

LIBRARIES = 20
START_SECONDS, START_CPU_SECONDS = 1.5, 1.3
PROCESSES = 500
LAUNCHES = 3
AGENT = (
    "from hotstage.clock import SystemClock; from hotstage.config.settings import ProbesConfig\n"
    "from hotstage.probes.engine import ProbeEngine; import time\n"
    "e = ProbeEngine(ProbesConfig(xid=False, driver=False), SystemClock()); e.start()\n"
    "print(e.start_seconds, e.following.books.counts()[0], flush=True); time.sleep(60)"
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_caller(tmp_path_factory.mktemp("caller"))


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("drivers")
    built = build_driver(folder / "built", others=every_symbol())
    return [copy_of(built, folder / str(number), number) for number in range(LIBRARIES)]


@pytest.fixture
def start_caller(program: Path) -> Iterator[Callable[..., Caller]]:
    callers: list[Caller] = []

    def start(*arguments: object, **options: object) -> Caller:
        callers.append(Caller(program, *arguments, **options))  # type: ignore[arg-type]
        return callers[-1]

    yield start
    for caller in callers:
        caller.end()


@pytest.fixture
def make_engine() -> Iterator[Callable[[], ProbeEngine]]:
    with ExitStack() as stack:

        def make() -> ProbeEngine:
            config = ProbesConfig(xid=False, driver=False, process_linger_seconds=0.2)
            engine = ProbeEngine(config, SystemClock())
            stack.callback(engine.close)
            return engine

        yield make


@pytest.fixture
def engine(make_engine: Callable[[], ProbeEngine]) -> ProbeEngine:
    return make_engine()


def started_in_time(make_engine: Callable[[], ProbeEngine]) -> ProbeEngine:
    """The first of three that starts in time, or that does not for want of a CPU: what else runs here adds
    time, and takes none away.
    """
    for _ in range(3):
        engine = make_engine()
        began = time.process_time()
        engine.start()
        own_seconds = time.process_time() - began
        print(f"started in {engine.start_seconds:.2f} s, {own_seconds:.2f} s of them on a CPU")
        assert engine.start_seconds is not None
        if engine.start_seconds <= START_SECONDS or own_seconds <= START_CPU_SECONDS:
            return engine
        engine.close()
    raise AssertionError(f"{engine.start_seconds:.2f} s from start to all attached, thrice too long")


def test_twenty_libraries_with_every_symbol_are_attached_and_let_go_in_time(
    make_engine: Callable[[], ProbeEngine], drivers: list[Path], start_caller: Callable[..., Caller]
) -> None:
    user = start_caller("cuLaunchKernel", 1009, *drivers)
    engine = started_in_time(make_engine)
    (process,) = [process for process in engine.coverage().processes if process.pid == user.pid]
    assert [library.state for library in process.libraries] == ["attached"] * LIBRARIES
    points = sum(library.attached for library in process.libraries)
    assert points >= LIBRARIES * 100
    verdicts = [library.trial.placement for library in process.libraries if library.trial]
    assert set(verdicts) <= {"verified", "unverified"} and len(verdicts) == LIBRARIES
    user.call()
    assert engine.totals().by_pid[user.pid]["cuLaunchKernel"].counted == 1009
    began = time.monotonic()
    engine.close()
    seconds = time.monotonic() - began
    print(
        f"{LIBRARIES} libraries, {points} symbols: attached in {engine.start_seconds:.2f} s,"
        f" {verdicts.count('verified')} of them verified; let go in {seconds:.2f} s"
    )
    assert seconds <= 1.0


def let_go_after_kill(user: Caller, codes: dict[Path, tuple[int, bytes]]) -> float:
    """Seconds from kill -9 of an agent that probes these libraries until their code is as it was."""
    agent = subprocess.Popen([sys.executable, "-c", AGENT], stdout=subprocess.PIPE)
    assert agent.stdout is not None
    first, (place, _) = next(iter(codes.items()))
    try:
        assert agent.stdout.readline()
        wait_until(lambda: first_bytes(user.pid, first, place)[0] == 0xCC, "it is probed")
        agent.send_signal(signal.SIGKILL)
        began = time.monotonic()
        agent.wait(10)
    finally:
        agent.kill()
        agent.wait(10)
        agent.stdout.close()
    for library, (offset, before) in codes.items():
        wait_until(
            lambda o=offset, p=library, b=before: first_bytes(user.pid, p, o) == b, "the code is restored"
        )
    return time.monotonic() - began


def test_nothing_of_twenty_libraries_is_left_after_kill_9(
    drivers: list[Path], start_caller: Callable[..., Caller]
) -> None:
    user = start_caller("cuLaunchKernel", 101, *drivers)
    codes = {}
    for library in drivers:
        with library.open("rb") as file:
            offset = read_elf(file.fileno()).functions["cuLaunchKernel"].offset + 10
            codes[library] = (offset, os.pread(file.fileno(), 5, offset))
    for _ in range(3):  # what else runs here adds time, and takes none away
        seconds = let_go_after_kill(user, codes)
        print(f"{LIBRARIES} libraries let go {seconds:.2f} s after kill -9")
        if seconds <= 1.0:
            break
    assert seconds <= 1.0
    user.call()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def held(engine: ProbeEngine) -> dict[str, int]:
    """What this process holds that must not grow with the number of processes that came and went."""
    descriptors = list(Path("/proc/self/fd").iterdir())
    names = []
    for entry in descriptors:
        try:
            names.append(entry.readlink().name)
        except OSError:  # the one that listed them
            continue
    return {
        "descriptors": len(names),
        "links": sum("bpf_link" in name or "bpf-link" in name for name in names),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "points": engine.following.books.counts()[0],
        "map bytes": engine.map_bytes(),
    }


def test_churn_of_five_hundred_processes_leaks_nothing_and_loses_no_call(
    engine: ProbeEngine, program: Path, drivers: list[Path], start_caller: Callable[..., Caller]
) -> None:
    keeper = start_caller("cuLaunchKernel", 1, drivers[0])
    engine.start()
    command = [str(program), "now", str(LAUNCHES), "cuLaunchKernel", str(drivers[0])]
    for _ in range(20):  # so that what grows once has grown
        subprocess.run(command, check=True)
    before, memory = held(engine), resident_bytes()
    pids: list[int] = []
    for _ in range(PROCESSES // 20):
        running = [subprocess.Popen(command) for _ in range(20)]
        pids += [process.pid for process in running]
        assert [process.wait(20) for process in running] == [0] * 20

    def rows() -> int:
        keys = engine.read_slow().keys["tgid"]
        return int(np.isin(keys, pids).sum() + np.isin(engine.unmarked.threads()["tgid"], pids).sum())

    wait_until(lambda: rows() == 0, "the entries of the dead are removed", 10.0)
    wait_until(lambda: set(engine.pids()) & set(pids) == set(), "the exits are noticed")
    by_pid = engine.totals().by_pid
    assert [by_pid[pid]["cuLaunchKernel"].counted for pid in pids] == [LAUNCHES] * PROCESSES
    for what, count in before.items():
        wait_until(lambda w=what, c=count: held(engine)[w] <= c, f"it holds no more {what} than {count}")
    grown = resident_bytes() - memory
    print(f"{PROCESSES} processes: {grown / 1024:.0f} KiB more memory, {before}")
    assert grown < 8 << 20
    keeper.call()


def test_a_thousand_forks_and_exits_inside_a_call_are_each_counted_once(
    engine: ProbeEngine, tmp_path: Path, start_caller: Callable[..., Caller]
) -> None:
    ends = "#include <unistd.h>\nHIDDEN int body_cuMemFree_v2(void *p, word n) { if (n) _exit(0); return 0; }"
    library = build_driver(tmp_path / "ends", more=ends, entries=("cuMemFree_v2",))
    user = start_caller("cuMemFree_v2", 997, library, forks=True)
    engine.start()
    user.call(60.0)

    def counted() -> tuple[int, int]:
        engine.read_slow()
        call = engine.totals().by_call.get("cuMemFree_v2")
        return (call.counted, call.open) if call else (0, 0)

    wait_until(lambda: counted() == (997, 0), "each call that ended its process is counted and closed", 10.0)
    assert engine.following.is_running
