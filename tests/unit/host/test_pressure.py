# SPDX-License-Identifier: Apache-2.0
"""Shares over the time between two looks, and a tick that never waits for a file."""

from __future__ import annotations

import math
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hotstage.host.pressure import PressureReader, PressureWatch


def stall(some_us: int, full_us: int = 0) -> str:
    lines = (("some", some_us), ("full", full_us))
    return "".join(f"{name} avg10=1.00 avg60=0.00 avg300=0.00 total={total}\n" for name, total in lines)


class Host:
    def __init__(self, root: Path) -> None:
        self.proc, self.cgroups = root / "proc", root / "cgroup"
        (self.proc / "pressure").mkdir(parents=True)
        (self.cgroups / "box").mkdir(parents=True)
        for folder in (self.cgroups, self.cgroups / "box"):
            (folder / "cgroup.procs").write_text("")
        (self.cgroups / "cgroup.controllers").write_text("cpu memory\n")
        for pid in (42, 43):
            (self.proc / str(pid)).mkdir()
            (self.proc / str(pid) / "cgroup").write_text("0::/box\n")

    def say(self, *, host_us: int, box_us: int, periods: int, throttled: int, throttled_us: int) -> None:
        (self.proc / "pressure" / "memory").write_text(stall(host_us, host_us // 2))
        (self.cgroups / "box" / "cpu.pressure").write_text(stall(box_us))
        (self.cgroups / "box" / "cpu.stat").write_text(
            f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {throttled_us}\n"
        )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_shares_are_over_the_time_between_two_looks(host: Host, clock: Any) -> None:
    reader = PressureReader(clock, host.proc, host.cgroups)
    host.say(host_us=1_000_000, box_us=0, periods=10, throttled=1, throttled_us=0)
    first = reader.look([42, 43])
    assert math.isnan(first.host["memory"].some_ratio)
    assert first.host["memory"].some_avg10_ratio == pytest.approx(0.01)
    clock.advance(2.0)
    host.say(host_us=2_000_000, box_us=500_000, periods=30, throttled=6, throttled_us=4_000_000)
    sample = reader.look([42, 43])
    assert sample.host["memory"].some_ratio == pytest.approx(0.5)
    assert sample.host["memory"].full_ratio == pytest.approx(0.25)
    assert "cpu" not in sample.host  # no file: the kernel does not tell
    assert sample.cgroup_of[42] == sample.cgroup_of[43]
    (load,) = sample.cgroups.values()
    assert load.throttled_ratio == pytest.approx(0.25)
    assert load.throttled_cpus == pytest.approx(2.0)
    assert load.stalls["cpu"].some_ratio == pytest.approx(0.25)


def test_a_cgroup_without_pressure_files_or_psi_has_none(host: Host, clock: Any) -> None:
    sample = PressureReader(clock, host.proc, host.cgroups).look([42, 4711])
    assert sample.host == {}
    assert list(sample.cgroup_of) == [42]
    assert next(iter(sample.cgroups.values())).stalls == {}


def test_so_many_cgroups_are_read_and_the_rest_is_told(host: Host, clock: Any) -> None:
    for pid in range(1000, 1200):
        (host.proc / str(pid)).mkdir()
        (host.proc / str(pid) / "cgroup").write_text(f"0::/b{pid}\n")
        (host.cgroups / f"b{pid}").mkdir()
        (host.cgroups / f"b{pid}" / "cgroup.procs").write_text("")
    sample = PressureReader(clock, host.proc, host.cgroups).look(range(1000, 1200))
    assert (len(sample.cgroups), sample.left_out) == (128, 72)
    assert len(sample.cgroup_of) == 128


def wait_for(condition: Any, what: str) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


def test_a_file_that_hangs_hangs_no_tick_and_is_unknown(host: Host, clock: Any) -> None:
    host.say(host_us=0, box_us=0, periods=0, throttled=0, throttled_us=0)
    watch = PressureWatch(PressureReader(clock, host.proc, host.cgroups), clock)
    watch.start()
    wait_for(lambda: watch.latest([42]) is not None, "the first look is there")
    hanging = host.cgroups / "box" / "cpu.stat"
    hanging.unlink()
    os.mkfifo(hanging)  # opening it for reading waits for a writer
    watch.latest([42])
    clock.advance(4.0)
    began = time.monotonic()
    assert watch.latest([42]) is None
    assert time.monotonic() - began < 0.1
    writer = os.open(hanging, os.O_WRONLY)  # the file system answers again
    os.close(writer)
    hanging.unlink()
    wait_for(lambda: watch.latest([42]) is not None, "it is known again")
    watch.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "hotstage-pressure"]


def test_a_look_that_fails_is_told_and_the_next_one_works(
    host: Host, clock: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader = PressureReader(clock, host.proc, host.cgroups)
    looks = [lambda pids: 1 / 0, reader.look]
    monkeypatch.setattr(reader, "look", lambda pids: looks.pop(0)(pids) if looks else None)
    watch = PressureWatch(reader, clock)
    watch.start()
    wait_for(lambda: watch.latest([42]) is not None, "the look after it is there")
    watch.close()
    assert "pressure could not be read" in caplog.text
