# SPDX-License-Identifier: Apache-2.0
"""Each tracepoint is present, absent or not known, with what it gives and whether anything uses it today."""

from __future__ import annotations

import pytest

from hotstage.cli.doctor.finding import Status
from hotstage.cli.doctor.kernel_files import KernelFiles, read_kernel_files
from hotstage.cli.doctor.tracepoints import QUEUE_SUBMIT, TABLE, Seen, check_tracepoints, look_at_tracepoints
from hotstage.cli.doctor.trivial_program import AttachTrial

WORKS, GONE, DENIED = AttachTrial(True, None), AttachTrial(False, "ENOENT"), AttachTrial(None, "EPERM (no)")


def seen(host, present: dict[str, AttachTrial], *, is_listed: bool = True):
    """`present` names what is there, with how attaching went; the others are absent."""
    events = frozenset(present) if is_listed else None
    tracefs = "sys/kernel/tracing" if is_listed else None
    host.given(read_kernel_files, KernelFiles(events, events or frozenset(), tracefs, False, None, None))
    rows = []
    for row in TABLE:
        trial = present.get(row.event, GONE if is_listed else DENIED)
        is_present = row.event in present if is_listed else trial.is_present
        rows.append(Seen(row, is_present, row.event in present, trial))
    return host.given(look_at_tracepoints, tuple(rows))


def test_every_row_is_told_once_and_names_its_group():
    assert len({row.event for row in TABLE}) == len(TABLE)
    assert all(row.event.count(":") == 1 and row.gives for row in TABLE)
    assert {row.event for row in TABLE if not row.is_used} == {
        "sched:sched_wakeup",
        *("sched:sched_process_exec", "sched:sched_process_exit"),
    }


def test_the_seeds_event_is_the_first_choice(host, by_name):
    chain = [row.event for row in TABLE if row.logical == QUEUE_SUBMIT]
    assert chain[0] == "nv_gpu:queue_submit"
    found = by_name(
        check_tracepoints(seen(host, {"nv_gpu:queue_submit": WORKS, "xe:xe_sched_job_run": WORKS}))
    )
    assert found[QUEUE_SUBMIT].data["present"] == "nv_gpu:queue_submit"
    assert found[QUEUE_SUBMIT].detail.startswith("nv_gpu:queue_submit stands for it: work handed to the GPU")
    assert found["xe:xe_sched_job_run"].detail.startswith("present, attachable, counted: ")


def test_without_any_the_launch_calls_stand_for_it(host, by_name):
    found = by_name(check_tracepoints(seen(host, {})))
    assert found[QUEUE_SUBMIT].status is Status.ABSENT
    assert "cuLaunchKernel" in found[QUEUE_SUBMIT].detail
    assert found[QUEUE_SUBMIT].data == {
        "chain": [row.event for row in TABLE if row.logical == QUEUE_SUBMIT],
        "present": None,
        "in_use": "launch calls",
    }


def test_present_means_attachable_and_says_whether_it_is_used(host, by_name):
    present = dict.fromkeys(("printk:console", "syscalls:sys_enter_ioctl", "sched:sched_wakeup"), WORKS)
    found = by_name(check_tracepoints(seen(host, present)))
    assert found["printk:console"].detail == "present, attachable, used: gives XID lines of the kernel log"
    assert "used where [probes] gpu_ioctls is on" in found["syscalls:sys_enter_ioctl"].detail
    assert found["sched:sched_wakeup"].detail.startswith("present, attachable, not used: ")


@pytest.mark.parametrize(
    ("event", "status"),
    [
        ("printk:console", Status.WARN),
        ("xe:xe_sched_job_run", Status.ABSENT),
        ("sched:sched_wakeup", Status.ABSENT),
    ],
)
def test_only_what_is_used_and_of_every_kernel_is_missed(host, by_name, event, status):
    assert by_name(check_tracepoints(seen(host, {})))[event].status is status


def test_present_and_refused_is_a_lack_where_it_is_used(host, by_name):
    found = by_name(check_tracepoints(seen(host, {"printk:console": DENIED, "sched:sched_wakeup": DENIED})))
    assert (found["printk:console"].status, found["sched:sched_wakeup"].status) == (Status.WARN, Status.OK)
    assert found["printk:console"].remedy == "CAP_BPF and CAP_PERFMON"


def test_without_tracefs_what_takes_a_program_is_present(host, by_name):
    found = by_name(check_tracepoints(seen(host, {"printk:console": WORKS}, is_listed=False)))
    assert found["tracefs"].status is Status.UNKNOWN
    assert found["printk:console"].status is Status.OK
    assert found["oom:mark_victim"].status is Status.UNKNOWN
    assert "not known" in found[QUEUE_SUBMIT].detail
