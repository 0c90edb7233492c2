# SPDX-License-Identifier: Apache-2.0
"""tracefs and securityfs as they are mounted; what is not there is unknown, never empty."""

from __future__ import annotations

from hotstage.cli.doctor.kernel_files import read_kernel_files


def test_nothing_mounted_is_unknown(host):
    found = read_kernel_files(host)
    assert (found.events, found.tracefs, found.lockdown, found.modules) == (None, None, None, None)


def test_only_events_with_a_format_are_events(host):
    events = "sys/kernel/tracing/events"
    host.write(
        {f"{events}/printk/console/format": "", f"{events}/printk/enable": "0", f"{events}/x/y/id": "1"}
    )
    found = read_kernel_files(host)
    assert found.events == {"printk:console"}
    assert found.tracefs == "sys/kernel/tracing"
    assert not found.is_private


def test_tracefs_below_debugfs_is_found_as_well(host):
    host.write({"sys/kernel/debug/tracing/events/oom/mark_victim/format": ""})
    assert read_kernel_files(host).tracefs == "sys/kernel/debug/tracing"


def test_a_layout_that_may_not_be_read_is_present_and_not_readable(public_host, drop_root):
    host = public_host
    host.write({"sys/kernel/tracing/events/printk/console/format": ""})
    (host.root / "sys/kernel/tracing/events/printk/console/format").chmod(0)
    drop_root()
    found = read_kernel_files(host)
    assert (found.events, found.readable) == ({"printk:console"}, frozenset())


def test_lockdown_is_the_word_in_brackets(host):
    security = "sys/kernel/security"
    host.write(
        {
            f"{security}/lockdown": "none [integrity] confidentiality\n",
            f"{security}/lsm": "lockdown,capability",
        }
    )
    found = read_kernel_files(host)
    assert (found.lockdown, found.modules) == ("integrity", "lockdown,capability")


def test_a_kernel_that_cannot_lock_down_says_none(host):
    assert read_kernel_files(host.write({"sys/kernel/security/lsm": "capability"})).lockdown == "none"
