# SPDX-License-Identifier: Apache-2.0
"""Cgroup files of both versions below a fake root, as the kernel writes them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from hotstage.host.cgroups import places_of, read_cgroup, read_stalls


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "42").mkdir(parents=True)
    cgroups.mkdir()
    return proc, cgroups


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_version_2_tells_all_of_it(roots: tuple[Path, Path]) -> None:
    proc, cgroups = roots
    write(cgroups, cgroup__controllers="cpu memory\n", cgroup__procs="")
    write(
        cgroups / "pod" / "box",
        cgroup__procs="42\n",
        cpu__stat="usage_usec 9\nnr_periods 10\nnr_throttled 4\nthrottled_usec 1500000\n",
        memory__current="4096\n",
        memory__high="8192\n",
        memory__max="max\n",
        memory__events="low 0\nhigh 3\nmax 2\noom 1\noom_kill 1\noom_group_kill 0\n",
        memory__pressure="some avg10=12.50 avg60=0.00 avg300=0.00 total=2000000\n"
        "full avg10=1.00 avg60=0.00 avg300=0.00 total=500000\n",
    )
    (proc / "42" / "cgroup").write_text("0::/pod/box\n")
    places = places_of(42, proc, cgroups)
    assert places is not None
    found = read_cgroup(places)
    assert (found.periods, found.throttled_periods, found.throttled_seconds) == (10, 4, 1.5)
    assert (found.memory_bytes, found.memory_high_bytes) == (4096, 8192)
    assert math.isnan(found.memory_max_bytes)
    assert found.events == {"high": 3, "max": 2, "oom": 1, "oom_kill": 1}
    assert list(found.stalls) == ["memory"]
    stall = found.stalls["memory"]
    assert (stall.some_seconds, stall.full_seconds, stall.some_avg10_ratio) == (2.0, 0.5, 0.125)


def test_a_quota_further_up_holds_too(roots: tuple[Path, Path]) -> None:
    proc, cgroups = roots
    write(cgroups, cgroup__controllers="cpu\n", cgroup__procs="")
    write(
        cgroups / "pod", cpu__stat="nr_periods 20\nnr_throttled 9\nthrottled_usec 3000000\n", cgroup__procs=""
    )
    write(
        cgroups / "pod" / "box",
        cpu__stat="nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
        cgroup__procs="",
    )
    (proc / "42" / "cgroup").write_text("0::/pod/box\n")
    places = places_of(42, proc, cgroups)
    assert places is not None
    assert read_cgroup(places).throttled_seconds == 3.0


def test_version_1_with_pressure_from_beside_it(roots: tuple[Path, Path]) -> None:
    proc, cgroups = roots
    write(cgroups / "unified", cgroup__controllers="", cgroup__procs="")
    write(
        cgroups / "unified" / "u",
        cgroup__procs="",
        cpu__pressure="some avg10=0.00 avg60=0 avg300=0 total=1\n",
    )
    write(cgroups / "cpu" / "box", cpu__stat="nr_periods 5\nnr_throttled 5\nthrottled_time 2000000000\n")
    write(
        cgroups / "memory" / "box",
        memory__usage_in_bytes="1\n",
        memory__limit_in_bytes="9223372036854771712\n",
        memory__failcnt="7\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    )
    (proc / "42" / "cgroup").write_text("4:memory:/box\n1:cpu:/box\n2:cpuacct:/\n0::/u\n")
    places = places_of(42, proc, cgroups)
    assert places is not None
    found = read_cgroup(places)
    assert (found.throttled_periods, found.throttled_seconds) == (5, 2.0)
    assert math.isnan(found.memory_max_bytes)
    assert found.events == {"max": 7, "oom_kill": 2}
    assert list(found.stalls) == ["cpu"]


def test_what_has_gone_or_never_was_tells_nothing(roots: tuple[Path, Path]) -> None:
    proc, cgroups = roots
    assert places_of(41, proc, cgroups) is None
    (proc / "42" / "cgroup").write_text("0::/../../elsewhere\n1:cpu:/gone\n")
    places = places_of(42, proc, cgroups)
    assert places is not None
    found = read_cgroup(places)
    assert math.isnan(found.periods) and math.isnan(found.memory_bytes)
    assert (found.events, found.stalls) == ({}, {})


def test_nonsense_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "cpu").write_text("some avg10=x total=\n\nfull\n")
    stall = read_stalls(tmp_path, "{}")["cpu"]
    assert math.isnan(stall.some_seconds) and math.isnan(stall.full_avg10_ratio)
