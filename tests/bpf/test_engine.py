# SPDX-License-Identifier: Apache-2.0
"""The engine on a real kernel: whatever appears is attached, counted to the last call, and let go of.

Prime counts, so that a call counted twice or lost cannot look right by accident.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.engine import ProbeEngine

sys.path.insert(0, str(Path(__file__).parent))
from targets import (
    Target,
    build_library,
    covered_kinds,
    first_bytes,
    libraries_of,
    other_probers,
    wait_until,
)

pytestmark = pytest.mark.kernel

StartEngine = Callable[..., ProbeEngine]


@pytest.fixture
def start_engine() -> Iterator[StartEngine]:
    engines: list[ProbeEngine] = []

    def start(**settings: object) -> ProbeEngine:
        engine = ProbeEngine(ProbesConfig(xid=False, driver=False, **settings), SystemClock())  # type: ignore[arg-type]
        engine.start()
        engines.append(engine)
        return engine

    yield start
    for engine in engines:
        engine.close()


def is_attached(engine: ProbeEngine, pid: int) -> Callable[[], bool]:
    return lambda: "libcuda" in covered_kinds(engine, pid)


def counted(engine: ProbeEngine, pid: int, name: str) -> int:
    calls = engine.totals().by_pid.get(pid, {})
    return calls[name].counted if name in calls else 0


def expect_bytes(pid: int, library: Path, offset: int, expected: bytes, what: str) -> None:
    """The code is as expected within 5 s; another agent that runs here would have changed it as well."""
    try:
        wait_until(lambda: first_bytes(pid, library, offset) == expected, what)
    except AssertionError as error:
        if others := other_probers():
            error.add_note(f"another agent on this host probes every libcuda, end it first: {others}")
        raise


def test_a_library_that_is_there_is_attached_at_the_start_and_counted_exactly(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    target = start_target()
    target.open(build_library(tmp_path))
    engine = start_engine()
    assert engine.start_seconds is not None and engine.start_seconds <= 1.5
    (library,) = libraries_of(engine, target.pid)
    assert (library.kind, library.state, library.attached, library.emulated) == ("libcuda", "attached", 4, 4)
    assert not library.from_start
    target.call("cuLaunchKernel", 1009)
    target.call("cuMemAlloc_v2", 503)
    totals = engine.totals()
    assert counted(engine, target.pid, "cuLaunchKernel") == 1009
    assert counted(engine, target.pid, "cuMemAlloc_v2") == 503
    assert totals.lost == 0
    missed = {symbol.symbol: symbol.reason for symbol in engine.coverage().missed}
    assert missed["cuGraphLaunch"] == "not exported"


def test_a_library_opened_late_is_attached_within_half_a_second(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    library = build_library(tmp_path)
    engine = start_engine()
    target = start_target()
    target.open(library)
    delay = wait_until(is_attached(engine, target.pid), "the new library is attached", 0.5)
    print(f"new library attached after {delay * 1000:.0f} ms")
    target.call("cuLaunchKernel", 211)
    assert counted(engine, target.pid, "cuLaunchKernel") == 211


def test_a_process_that_maps_an_attached_library_is_covered_from_its_first_call(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    library = build_library(tmp_path)
    first, second = start_target(), start_target()
    first.open(library)
    engine = start_engine()
    second.open(library)
    second.call("cuLaunchKernel", 307)
    assert counted(engine, second.pid, "cuLaunchKernel") == 307
    wait_until(is_attached(engine, second.pid), "the second process is listed")
    assert libraries_of(engine, second.pid)[0].from_start


def test_a_forked_child_is_counted_under_its_own_pid(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    target = start_target()
    target.open(build_library(tmp_path))
    engine = start_engine()
    child = target.tell("fork")
    assert counted(engine, child, "cuLaunchKernel") == 1
    assert counted(engine, target.pid, "cuLaunchKernel") == 0


def test_a_replaced_file_leaves_old_processes_counted_and_takes_in_new_ones(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    library = build_library(tmp_path / "lib")
    old = start_target()
    old.open(library)
    engine = start_engine()
    build_library(tmp_path / "new", salt="another version").rename(library)
    new = start_target()
    new.open(library)
    wait_until(is_attached(engine, new.pid), "the new file is attached")
    old.call("cuLaunchKernel", 101)
    new.call("cuLaunchKernel", 103)
    assert counted(engine, old.pid, "cuLaunchKernel") == 101
    # It was once counted 0 of 103, and never again in many runs: should it come back, this says more.
    coverage = engine.coverage()
    told = (libraries_of(engine, new.pid), coverage.losses, coverage.discovery, coverage.calls.by_pid)
    assert counted(engine, new.pid, "cuLaunchKernel") == 103, told


def test_a_deleted_library_is_attached_through_map_files(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    library = build_library(tmp_path)
    target = start_target()
    target.open(library)
    library.unlink()
    engine = start_engine()
    assert is_attached(engine, target.pid)()
    target.call("cuLaunchKernel", 409)
    assert counted(engine, target.pid, "cuLaunchKernel") == 409


def test_a_forged_library_is_refused_with_a_reason_and_the_good_one_beside_it_works(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    good = build_library(tmp_path / "good")
    forged = tmp_path / "forged" / "libcuda.so.1"
    forged.parent.mkdir()
    data = bytearray(good.read_bytes())
    data[54:56] = b"\x01\x00"  # program headers of one byte
    forged.write_bytes(data)
    code = (
        f"import mmap, time; file = open({str(forged)!r}, 'rb')\n"
        "memory = mmap.mmap(file.fileno(), 0, prot=5, flags=2); time.sleep(60)"
    )
    mapper = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_until(lambda: "forged" in Path(f"/proc/{mapper.pid}/maps").read_text(), "the forgery is mapped")
        target = start_target()
        target.open(good)
        engine = start_engine()
        (library,) = libraries_of(engine, mapper.pid)
        assert library.state == "failed"
        assert library.reason is not None and "program headers of 1 bytes" in library.reason
        target.call("cuLaunchKernel", 97)
        assert counted(engine, target.pid, "cuLaunchKernel") == 97
    finally:
        mapper.kill()
        mapper.wait(10)


def test_a_library_without_any_catalogued_call_is_listed_and_left_alone(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    target = start_target()
    target.open(build_library(tmp_path, name="libcudart.so.12"))
    engine = start_engine()
    (library,) = libraries_of(engine, target.pid)
    assert (library.kind, library.state, library.attached) == ("libcudart", "ignored", 0)


def test_a_second_path_to_the_same_file_is_not_counted_twice(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    library = build_library(tmp_path / "a")
    (tmp_path / "b").mkdir()
    link = tmp_path / "b" / "libcuda.so.1"
    os.link(library, link)
    first, second = start_target(), start_target()
    first.open(library)
    second.open(link)
    engine = start_engine()
    first.call("cuLaunchKernel", 53)
    second.call("cuLaunchKernel", 59)
    assert counted(engine, first.pid, "cuLaunchKernel") == 53
    assert counted(engine, second.pid, "cuLaunchKernel") == 59


def test_counts_outlive_their_processes_under_churn(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    library = build_library(tmp_path)
    keeper = start_target()
    keeper.open(library)
    engine = start_engine(process_linger_seconds=0.2)
    pids = []
    for round_number in range(7):
        target = start_target()
        target.open(library)
        target.call("cuLaunchKernel", 31 + round_number)
        pids.append(target.pid)
        wait_until(is_attached(engine, target.pid), "the process is listed")
        target.end()
    wait_until(lambda: not set(pids) & set(engine.pids()), "the exits are noticed")

    def rows() -> int:
        return int(np.isin(engine.read_slow().keys["tgid"], pids).sum())

    wait_until(lambda: rows() == 0, "the entries of the dead are removed")
    assert [counted(engine, pid, "cuLaunchKernel") for pid in pids] == [31 + n for n in range(7)]
    assert {epoch.pid for epoch in engine.coverage().epochs} >= set(pids)


def test_a_call_that_never_returned_is_open_while_it_lasts_and_counted_after_the_end(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    target = start_target()
    target.open(build_library(tmp_path))
    engine = start_engine(process_linger_seconds=0.1)
    target.tell("thread")

    def count() -> tuple[int, int]:
        call = engine.totals().by_pid.get(target.pid, {}).get("cuEventSynchronize")
        return (call.counted, call.open) if call else (0, 0)

    wait_until(lambda: count() == (1, 1), "the call is seen in flight")
    threads = engine.read_fast().threads
    assert ((threads["tgid"] == target.pid) & (threads["call"] != 0)).sum() == 1
    target.end()
    wait_until(lambda: target.pid not in engine.pids(), "the exit is noticed")
    time.sleep(0.15)
    wait_until(lambda: (engine.read_slow(), count())[1] == (1, 0), "the call is counted as abandoned")


def test_closing_restores_the_code(
    tmp_path: Path, start_engine: StartEngine, start_target: Callable[[], Target]
) -> None:
    library = build_library(tmp_path)
    target = start_target()
    target.open(library)
    with library.open("rb") as file:
        offset = read_elf(file.fileno()).functions["cuLaunchKernel"].offset + 10
        before = os.pread(file.fileno(), 5, offset)
    engine = start_engine()
    assert first_bytes(target.pid, library, offset)[0] == 0xCC
    began = time.monotonic()
    engine.close()
    assert time.monotonic() - began < 1.0
    expect_bytes(target.pid, library, offset, before, "the code is restored")


def test_kill_9_leaves_nothing_attached(tmp_path: Path, start_target: Callable[[], Target]) -> None:
    library = build_library(tmp_path)
    target = start_target()
    target.open(library)
    with library.open("rb") as file:
        offset = read_elf(file.fileno()).functions["cuLaunchKernel"].offset + 10
        before = os.pread(file.fileno(), 5, offset)
    code = (
        "from hotstage.clock import SystemClock; from hotstage.config.settings import ProbesConfig\n"
        "from hotstage.probes.engine import ProbeEngine; import time\n"
        "e = ProbeEngine(ProbesConfig(), SystemClock()); e.start(); print(1, flush=True); time.sleep(60)"
    )
    agent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert agent.stdout is not None
    assert agent.stdout.readline() == b"1\n"
    assert first_bytes(target.pid, library, offset)[0] == 0xCC
    agent.send_signal(signal.SIGKILL)
    agent.wait(10)
    agent.stdout.close()
    expect_bytes(target.pid, library, offset, before, "the probes are gone")
    target.call("cuLaunchKernel", 11)
