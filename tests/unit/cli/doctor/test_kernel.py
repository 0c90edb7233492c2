# SPDX-License-Identifier: Apache-2.0
"""What doctor says of kernels that are made of a few files."""

from __future__ import annotations

import gzip

import pytest

from hotstage.cli.doctor.finding import Status
from hotstage.cli.doctor.kernel import (
    OPTIONS,
    check_bpf,
    check_btf,
    check_clock,
    check_lockdown,
    check_options,
    check_pressure,
    check_settings,
    check_version,
)
from hotstage.cli.doctor.kernel_files import KernelFiles, read_kernel_files
from hotstage.cli.doctor.trivial_program import BpfTrial, try_bpf

WORKS = BpfTrial(None, False, 20)
DENIED = BpfTrial("EPERM (Operation not permitted)", True, None)
FULL = "\n".join(f"{name}=y" for name, _, _ in OPTIONS)


def files(lockdown: str | None) -> KernelFiles:
    return KernelFiles(None, frozenset(), None, False, lockdown, None)


@pytest.mark.parametrize(
    ("release", "status"),
    [("6.18.1", Status.OK), ("5.15.0-generic", Status.OK), ("5.14.21", Status.FAIL), ("4.19", Status.FAIL)],
)
def test_linux_5_15_is_the_oldest(host, release, status):
    host.release = release
    (finding,) = check_version(host)
    assert finding.status is status
    assert (finding.remedy is None) is (status is Status.OK)


def test_without_btf_rung_s_is_lost_and_nothing_else(host):
    (finding,) = check_btf(host)
    assert (finding.status, finding.features) == (Status.WARN, ("rung S",))
    (finding,) = check_btf(host.write({"sys/kernel/btf/vmlinux": bytes(3 << 20)}))
    assert finding.status is Status.OK
    assert finding.detail == "/sys/kernel/btf/vmlinux, 3.0 MiB"


def test_the_configuration_is_read_packed_and_plain(host):
    (finding,) = check_options(host)
    assert finding.status is Status.ABSENT
    (finding,) = check_options(host.write({"boot/config-6.18.1": FULL}))
    assert (finding.status, finding.data["source"]) == (Status.OK, "/boot/config-6.18.1")
    (finding,) = check_options(host.write({"proc/config.gz": gzip.compress(FULL.encode())}))
    assert (finding.status, finding.data["source"]) == (Status.OK, "/proc/config.gz")


def test_an_option_that_is_off_is_named_with_what_it_serves(host):
    text = FULL.replace("CONFIG_UPROBE_EVENTS=y", "# CONFIG_UPROBE_EVENTS is not set")
    (finding,) = check_options(host.write({"boot/config-6.18.1": text}))
    assert finding.status is Status.WARN
    assert finding.detail.endswith("off: CONFIG_UPROBE_EVENTS (rung P)")
    (finding,) = check_options(host.write({"boot/config-6.18.1": text.replace("CONFIG_UPROBES=y", "")}))
    assert finding.status is Status.FAIL


def test_a_damaged_configuration_is_no_configuration(host):
    (finding,) = check_options(host.write({"proc/config.gz": gzip.compress(FULL.encode())[:40]}))
    assert finding.status is Status.ABSENT


def test_a_refused_system_call_is_a_right_or_a_kernel(host, by_name):
    found = by_name(check_bpf(host.given(try_bpf, DENIED)))
    assert (found["bpf(2)"].status, found["bpf(2)"].is_permission) == (Status.FAIL, True)
    assert "CAP_BPF" in (found["bpf(2)"].remedy or "")
    missing = BpfTrial("ENOSYS (Function not implemented)", False, None)
    found = by_name(check_bpf(host.given(try_bpf, missing)))
    assert found["bpf(2)"].is_permission is False
    assert "CONFIG_BPF_SYSCALL" in (found["bpf(2)"].remedy or "")


@pytest.mark.parametrize(
    ("machine_code", "enabled", "status"),
    [(20, "0", Status.OK), (None, "0", Status.WARN), (None, "1", Status.UNKNOWN)],
)
def test_machine_code_is_seen_and_not_believed(host, by_name, machine_code, enabled, status):
    host.write({"proc/sys/net/core/bpf_jit_enable": enabled})
    found = by_name(check_bpf(host.given(try_bpf, BpfTrial(None, False, machine_code))))
    assert found["JIT"].status is status


@pytest.mark.parametrize(
    ("mode", "bpf", "status"),
    [
        ("none", WORKS, Status.OK),
        ("integrity", WORKS, Status.OK),
        ("confidentiality", WORKS, Status.FAIL),
        (None, WORKS, Status.OK),
        (None, DENIED, Status.UNKNOWN),
    ],
)
def test_lockdown_that_is_not_shown_is_not_none(host, mode, bpf, status):
    host.given(read_kernel_files, files(mode)).given(try_bpf, bpf)
    (finding,) = check_lockdown(host)
    assert (finding.status, finding.data["mode"]) == (status, mode)


def test_settings_explain_and_only_too_little_perf_memory_is_a_lack(host, by_name):
    kernel = "proc/sys/kernel"
    host.write({f"{kernel}/perf_event_paranoid": "4", f"{kernel}/unprivileged_bpf_disabled": "0"})
    host.write({f"{kernel}/perf_event_mlock_kb": "64", f"{kernel}/perf_user_access": "1"})
    found = by_name(check_settings(host))
    assert found["perf_event_paranoid"].detail.startswith("4: some distributions")
    assert found["unprivileged_bpf_disabled"].status is Status.OK
    assert found["perf_event_mlock_kb"].status is Status.WARN
    assert "perf_user_access 1" in found["perf_event_mlock_kb"].detail
    host.write({f"{kernel}/perf_event_mlock_kb": "516\n"})
    assert by_name(check_settings(host))["perf_event_mlock_kb"].status is Status.OK


def test_a_host_without_those_settings_has_no_findings_of_them(host):
    assert list(check_settings(host)) == []


@pytest.mark.parametrize(
    ("source", "status"), [("tsc\n", Status.OK), ("kvm-clock", Status.OK), ("hpet", Status.WARN)]
)
def test_a_slow_clock_is_named(host, source, status):
    place = "sys/devices/system/clocksource/clocksource0"
    (finding,) = check_clock(host.write({f"{place}/current_clocksource": source}))
    assert finding.status is status


def test_a_clock_that_is_not_told_is_unknown(host):
    (finding,) = check_clock(host)
    assert finding.status is Status.UNKNOWN


def test_pressure_that_is_not_told_has_its_reason(host):
    (finding,) = check_pressure(host)
    assert finding.status is Status.ABSENT and "CONFIG_PSI" in finding.remedy
    (finding,) = check_pressure(host.write({"proc/pressure/cpu": b"some avg10=0.00 total=1\n"}))
    assert finding.status is Status.OK and finding.remedy is None
    host.write({"proc/pressure/cpu": b""})
    (finding,) = check_pressure(host)
    assert finding.status is Status.ABSENT and finding.remedy == "boot with psi=1"
