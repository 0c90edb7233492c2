# SPDX-License-Identifier: Apache-2.0
"""The tightest limit on the way up counts, in both generations of cgroups."""

from __future__ import annotations

from pathlib import Path

from hotstage.host.limits import Limits, read_limits


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_v2_takes_the_tightest_of_the_group_and_those_above(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/7/cgroup": "0::/pods/a\n",
            "cg/pods/cpu.max": "150000 100000\n",
            "cg/pods/memory.max": "1000\n",
            "cg/pods/a/cpu.max": "max 100000\n",
            "cg/pods/a/memory.max": "4000\n",
        },
    )
    assert read_limits(7, tmp_path / "proc", tmp_path / "cg") == Limits(1.5, 1000)


def test_v1_controllers_have_their_own_trees(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/7/cgroup": "4:memory:/m\n3:cpu:/c\n2:freezer:/f\n",
            "cg/cpu/c/cpu.cfs_quota_us": "50000\n",
            "cg/cpu/c/cpu.cfs_period_us": "100000\n",
            "cg/memory/m/memory.limit_in_bytes": "2048\n",
            "cg/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert read_limits(7, tmp_path / "proc", tmp_path / "cg") == Limits(0.5, 2048)


def test_no_limit_and_no_process_are_none(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/7/cgroup": "0::/\n3:cpu:/\n",
            "cg/cpu/cpu.cfs_quota_us": "-1\n",
            "cg/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert read_limits(7, tmp_path / "proc", tmp_path / "cg") == Limits(None, None)
    assert read_limits(8, tmp_path / "proc", tmp_path / "cg") == Limits(None, None)


def test_a_path_that_climbs_stays_below_the_root(tmp_path: Path) -> None:
    write(
        tmp_path, {"proc/7/cgroup": "0::/../../secret\n", "secret/memory.max": "1\n", "cg/memory.max": "77\n"}
    )
    assert read_limits(7, tmp_path / "proc", tmp_path / "cg") == Limits(None, 77)
