# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os

import pytest

from hotstage.simhost.quota import Quota, Quotas

QUOTA = Quota(0.5, 100 << 20)
PID = 4242


@pytest.fixture
def root(tmp_path):
    """A machine with v2, and one server that uses 10 MiB."""
    (tmp_path / "cg").mkdir()
    (tmp_path / "cg/cgroup.subtree_control").write_text("cpu memory\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    use(tmp_path, 10 << 20)
    return tmp_path


def use(root, rss_bytes):
    (root / f"proc/{PID}").mkdir(exist_ok=True)
    (root / f"proc/{PID}/statm").write_text(f"99999 {rss_bytes // os.sysconf('SC_PAGE_SIZE')} 0 0 0 0 0\n")


def quotas(root):
    return Quotas(root / "cg", root / "proc")


def group(root, instance="i-0"):
    return root / f"cg/hotstage-sim-{os.getpid()}-{instance}"


def test_a_server_is_moved_into_a_group_with_its_quota(root):
    quotas(root).impose("i-0", PID, QUOTA)
    assert (group(root) / "cpu.max").read_text() == "500000 1000000"
    assert (group(root) / "memory.max").read_text() == str(100 << 20)
    assert (group(root) / "cgroup.procs").read_text() == str(PID)


def test_a_quota_with_room_stays_as_it_is(root):
    held = quotas(root)
    held.impose("i-0", PID, QUOTA)
    assert held.relieve() == {}


def test_a_throttled_server_gets_twice_the_cores_once(root):
    held = quotas(root)
    held.impose("i-0", PID, QUOTA)
    (group(root) / "cpu.stat").write_text("nr_periods 9\nnr_throttled 1\n")
    assert held.relieve() == {"i-0": Quota(1.0, 100 << 20)}
    assert (group(root) / "cpu.max").read_text() == "1000000 1000000"
    assert held.relieve() == {}


def test_a_server_that_grows_gets_twice_the_memory_before_it_is_full(root):
    held = quotas(root)
    held.impose("i-0", PID, QUOTA)
    use(root, 76 << 20)
    assert held.relieve() == {"i-0": Quota(0.5, 200 << 20)}
    assert (group(root) / "memory.max").read_text() == str(200 << 20)


def test_lifted_quotas_limit_nothing(root):
    held = quotas(root)
    held.impose("i-0", PID, QUOTA)
    held.lift()
    assert (group(root) / "cpu.max").read_text() == "max 1000000"
    assert (group(root) / "memory.max").read_text() == "max"


def test_closing_removes_its_groups(root):
    held = quotas(root)
    for instance in ("i-0", "i-1"):
        held.impose(instance, PID, QUOTA)
        for file in group(root, instance).iterdir():  # the kernel's files go with their folder
            file.unlink()
    held.close()
    assert [path.name for path in (root / "cg").iterdir()] == ["cgroup.subtree_control"]


def test_groups_of_killed_hosts_are_removed_and_those_of_running_ones_stay(root):
    for name in ("hotstage-sim-777-i-0", "hotstage-sim-888-i-1", "another-777-i-0"):
        (root / "cg" / name).mkdir()
    (root / "proc/888").mkdir()
    quotas(root).impose("i-0", PID, QUOTA)
    left = {path.name for path in (root / "cg").iterdir() if path.is_dir()}
    assert left == {"hotstage-sim-888-i-1", "another-777-i-0", group(root).name}


def test_where_no_group_can_be_made_it_says_so_and_the_rest_does_nothing(root):
    (root / "cg/cgroup.subtree_control").write_text("pids\n")
    held = quotas(root)
    with pytest.raises(OSError, match="controllers"):
        held.impose("i-0", PID, QUOTA)
    assert held.relieve() == {}
    held.lift()
    held.close()


def test_a_server_that_makes_more_calls_may_use_more(root):
    assert QUOTA.times(4.0) == Quota(2.0, 100 << 20)
    assert QUOTA.times(0.1) == QUOTA
