# SPDX-License-Identifier: Apache-2.0
"""Containers, hidden processes, user namespaces and memory limits, from files."""

from __future__ import annotations

import os

from hotstage.cli.doctor.finding import Status
from hotstage.cli.doctor.namespaces import check_cgroups, check_memory, check_process_ids, check_sandbox
from hotstage.cli.doctor.rungs import RungTrials, try_rungs

HOST_PIDS = "pid:[4026531836]"


def processes(host, namespace=HOST_PIDS, mounts=""):
    host.write({"proc/mounts": mounts, "proc/17/stat": "", "proc/180/stat": ""})
    return host.link("proc/self/ns/pid", namespace)


def test_the_three_ways_to_mount_cgroups_are_told_apart(host):
    (finding,) = check_cgroups(host)
    assert finding.status is Status.WARN
    (finding,) = check_cgroups(host.write({"sys/fs/cgroup/unified/cgroup.controllers": ""}))
    assert (finding.status, finding.data["mount"]) == (Status.OK, "/sys/fs/cgroup/unified")
    (finding,) = check_cgroups(host.write({"sys/fs/cgroup/cgroup.controllers": "cpu"}))
    assert (finding.status, finding.data["mount"]) == (Status.OK, "/sys/fs/cgroup")


def test_all_of_the_hosts_processes_are_seen(host):
    (finding,) = check_process_ids(processes(host, mounts="proc /proc proc rw,nosuid 0 0\n"))
    assert (finding.status, finding.detail) == (Status.OK, "the host's: 2 processes seen")


def test_a_container_of_its_own_sees_itself_only(host):
    (finding,) = check_process_ids(processes(host, "pid:[4026532441]"))
    assert finding.status is Status.WARN
    assert "hostPID: true" in (finding.remedy or "")


def test_hidden_processes_are_told(host):
    for option in ("hidepid=2", "rw,hidepid=invisible"):
        host.root.joinpath("proc/self/ns/pid").unlink(missing_ok=True)
        (finding,) = check_process_ids(processes(host, mounts=f"proc /proc proc {option} 0 0\n"))
        assert finding.status is Status.WARN
        assert finding.data["hidepid"] in ("2", "invisible")


def test_hidepid_off_hides_nothing(host):
    (finding,) = check_process_ids(processes(host, mounts="proc /proc proc rw,hidepid=0 0 0\n"))
    assert finding.status is Status.OK


def test_capabilities_of_a_user_namespace_do_not_count(host):
    host.write({"proc/self/status": "Seccomp:\t2\nNoNewPrivs:\t1\n", "proc/self/uid_map": "0 1000 1\n"})
    (finding,) = check_sandbox(host)
    assert finding.status is Status.WARN
    assert (finding.data["seccomp"], finding.data["no_new_privileges"]) == ("filtered", True)
    (finding,) = check_sandbox(host.write({"proc/self/uid_map": "0 0 4294967295\n"}))
    assert finding.status is Status.OK


def test_a_limit_below_what_the_maps_take_is_a_lack(host):
    host.given(try_rungs, RungTrials("v1.1", None, (), 200 << 20))
    cgroup = "0::/pod\n"
    host.write({f"proc/{os.getpid()}/cgroup": cgroup, "sys/fs/cgroup/pod/memory.max": str(256 << 20)})
    (finding,) = check_memory(host)
    assert finding.status is Status.WARN
    assert finding.data["cgroup_limit_bytes"] == 256 << 20
    (finding,) = check_memory(host.write({"sys/fs/cgroup/pod/memory.max": str(1 << 30)}))
    assert finding.status is Status.OK


def test_without_maps_their_size_is_unknown(host):
    (finding,) = check_memory(host.given(try_rungs, RungTrials(None, None, (), None)))
    assert finding.status is Status.UNKNOWN
