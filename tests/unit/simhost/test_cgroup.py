# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from hotstage.simhost.cgroup import Group, find_place


def machine(root: Path, own: str, *folders: str, **control: str) -> tuple[Path, Path]:
    """(cgroup root, proc root) with these folders; `control` by folder: what v2 hands down there."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    for folder in folders:
        (root / "cg" / folder).mkdir(parents=True, exist_ok=True)
    for folder, words in control.items():
        (root / "cg" / folder / "cgroup.subtree_control").write_text(words)
    return root / "cg", root / "proc"


def test_v2_stands_below_the_nearest_group_that_hands_both_controllers_down(tmp_path):
    roots = machine(tmp_path, "0::/slice/scope\n", "slice/scope", slice="cpu io memory pids\n")
    assert find_place(*roots) == Group(True, tmp_path / "cg/slice", tmp_path / "cg/slice")


def test_v1_stands_below_its_own_group_of_each_controller(tmp_path):
    roots = machine(
        tmp_path, "4:memory:/box/7\n2:cpu,cpuacct:/\n0::/\n", "memory/box/7", "cpu,cpuacct", "unified"
    )
    assert find_place(*roots) == Group(False, tmp_path / "cg/cpu,cpuacct", tmp_path / "cg/memory/box/7")


def test_a_path_of_the_host_seen_in_a_container_ends_at_what_exists(tmp_path):
    roots = machine(tmp_path, "4:memory:/docker/ab\n2:cpu:/docker/ab/../..\n", "memory", "cpu")
    assert find_place(*roots) == Group(False, tmp_path / "cg/cpu", tmp_path / "cg/memory")


@pytest.mark.parametrize("own", ["0::/\n", "2:cpu:/\n0::/\n", ""])
def test_without_both_controllers_there_is_no_place_and_it_says_why(tmp_path, own):
    with pytest.raises(OSError, match="controllers cpu and memory"):
        find_place(*machine(tmp_path, own, "cpu"))


def test_limits_are_written_in_the_words_of_v2_and_lifted(tmp_path):
    group = Group(True, tmp_path, tmp_path)
    group.limit(0.15, 64 << 20)
    assert (tmp_path / "cpu.max").read_text() == "150000 1000000"
    assert (tmp_path / "memory.max").read_text() == "67108864"
    group.limit(None, None)
    assert (tmp_path / "cpu.max").read_text() == "max 1000000"
    assert (tmp_path / "memory.max").read_text() == "max"


def test_limits_are_written_in_the_words_of_v1_and_lifted(tmp_path):
    group = Group(False, tmp_path / "cpu", tmp_path / "memory")
    group.make()
    group.limit(0.25, 1000)
    assert (tmp_path / "cpu/cpu.cfs_quota_us").read_text() == "250000"
    assert (tmp_path / "cpu/cpu.cfs_period_us").read_text() == "1000000"
    assert (tmp_path / "memory/memory.limit_in_bytes").read_text() == "1000"
    group.limit(None, None)
    assert (tmp_path / "cpu/cpu.cfs_quota_us").read_text() == "-1"
    assert (tmp_path / "memory/memory.limit_in_bytes").read_text() == "-1"


def test_it_tells_how_often_it_was_throttled(tmp_path):
    group = Group(True, tmp_path, tmp_path)
    assert group.times_throttled() == 0
    (tmp_path / "cpu.stat").write_text("nr_periods 12\nnr_throttled 3\nthrottled_usec 9\n")
    assert group.times_throttled() == 3


def test_it_is_gone_only_when_each_of_its_folders_is(tmp_path):
    group = Group(False, tmp_path / "cpu", tmp_path / "memory")
    group.make()
    (tmp_path / "memory/busy").touch()
    assert not group.remove()
    (tmp_path / "memory/busy").unlink()
    assert group.remove()
    assert list(tmp_path.iterdir()) == []
