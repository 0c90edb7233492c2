# SPDX-License-Identifier: Apache-2.0
"""Checks of the kernel itself: version, BTF, configuration, the BPF system call, lockdown, limits, clock.

A file only explains; where something can be tried, the trial decides.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator

from hotstage.cli.doctor.finding import Area, Finding, Status
from hotstage.cli.doctor.host import Host
from hotstage.cli.doctor.kernel_files import read_kernel_files
from hotstage.cli.doctor.trivial_program import BpfTrial, try_bpf

KERNEL = Area.KERNEL
OLDEST = (5, 15)

OPTIONS: tuple[tuple[str, str, bool], ...] = (
    ("CONFIG_BPF_SYSCALL", "loading any program", True),
    ("CONFIG_BPF_EVENTS", "programs on probes and tracepoints", True),
    ("CONFIG_UPROBES", "probes in CUDA libraries", True),
    ("CONFIG_PERF_EVENTS", "noticing new libraries", True),
    ("CONFIG_BPF_JIT", "programs as machine code", False),
    ("CONFIG_DEBUG_INFO_BTF", "rung S", False),
    ("CONFIG_UPROBE_EVENTS", "rung P", False),
    ("CONFIG_TRACEPOINTS", "XID lines of the kernel log", False),
    ("CONFIG_CGROUPS", "request ids told apart by container", False),
)
"""Option, what it serves, and whether nothing works without it."""

_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")
_SIDEBAND_KIB_PER_CPU = 132


def check_version(host: Host) -> Iterator[Finding]:
    numbers = tuple(int(number) for number in re.findall(r"\d+", host.release)[:2])
    is_new_enough = numbers >= OLDEST
    yield Finding(
        KERNEL, "version", Status.OK if is_new_enough else Status.FAIL, f"{host.release} on {host.machine}",
        None if is_new_enough else "Linux 5.15 or newer; 6.6 to do without CAP_SYS_ADMIN, 6.13 for rung S",
        features=("count calls",), data={"release": host.release, "machine": host.machine},
    )  # fmt: skip


def check_btf(host: Host) -> Iterator[Finding]:
    file = host.root / "sys/kernel/btf/vmlinux"
    if not file.exists():
        yield Finding(
            KERNEL, "BTF", Status.WARN, "absent: rung S is not possible, M and P are",
            "a kernel with CONFIG_DEBUG_INFO_BTF", features=("rung S",),
        )  # fmt: skip
        return
    size = file.stat().st_size
    yield Finding(
        KERNEL, "BTF", Status.OK, f"/sys/kernel/btf/vmlinux, {size / 2**20:.1f} MiB", data={"bytes": size}
    )


def check_pressure(host: Host) -> Iterator[Finding]:
    """Pressure stall information: files that are there and refuse to be read say that it was switched off."""
    file = host.root / "proc/pressure/cpu"
    remedy: str | None = None
    try:
        is_told = bool(file.read_text())
    except FileNotFoundError:
        detail, remedy = "absent: built without it", "a kernel with CONFIG_PSI"
    except OSError as error:
        detail, remedy = f"cannot be read: {error.strerror}", "boot with psi=1"
    else:
        detail = "told by /proc/pressure" if is_told else "empty"
        remedy = None if is_told else "boot with psi=1"
    yield Finding(
        KERNEL, "pressure", Status.ABSENT if remedy else Status.OK,
        detail + (": no share of time in which tasks stand still" if remedy else ""), remedy,
    )  # fmt: skip


def check_options(host: Host) -> Iterator[Finding]:
    """The kernel's configuration, where it can be read."""
    place, text = read_options(host)
    if text is None:
        yield Finding(
            KERNEL, "configuration", Status.ABSENT,
            f"no /proc/config.gz and no /boot/config-{host.release}: only the trials below can tell",
        )  # fmt: skip
        return
    is_set = {name: bool(re.search(rf"^{name}=[ym]$", text, re.MULTILINE)) for name, _, _ in OPTIONS}
    missing = [(name, serves, is_vital) for name, serves, is_vital in OPTIONS if not is_set[name]]
    detail = f"{sum(is_set.values())} of {len(OPTIONS)} options that hotstage uses are set ({place})"
    if missing:
        detail += "; off: " + ", ".join(f"{name} ({serves})" for name, serves, _ in missing)
    is_vital = any(vital for _, _, vital in missing)
    yield Finding(
        KERNEL, "configuration", Status.FAIL if is_vital else Status.WARN if missing else Status.OK, detail,
        f"a kernel with {', '.join(name for name, _, _ in missing)}" if missing else None,
        features=tuple(serves for _, serves, _ in missing), data={"options": is_set, "source": place},
    )  # fmt: skip


def read_options(host: Host) -> tuple[str, str | None]:
    """(where, text) of the kernel's configuration; None when this host does not show it."""
    for place in ("proc/config.gz", f"boot/config-{host.release}", f"lib/modules/{host.release}/config"):
        try:
            raw = (host.root / place).read_bytes()
            return f"/{place}", (gzip.decompress(raw) if place.endswith(".gz") else raw).decode(
                "utf-8", "replace"
            )
        except (OSError, EOFError):
            continue
    return "", None


def check_bpf(host: Host) -> Iterator[Finding]:
    """The bpf(2) system call and its compiler, by loading a program of two instructions."""
    trial = host.once(try_bpf)
    data = {"load_error": trial.error, "machine_code_bytes": trial.machine_code_bytes}
    if trial.error is not None:
        remedy = (
            "run as root, or grant CAP_BPF and CAP_PERFMON; in a container also seccomp must allow bpf(2)"
            if trial.is_permission
            else "a kernel with CONFIG_BPF_SYSCALL"
        )
        yield Finding(
            KERNEL, "bpf(2)", Status.FAIL, f"refuses a program of two instructions: {trial.error}", remedy,
            trial.is_permission, ("count calls",), data,
        )  # fmt: skip
        return
    yield Finding(KERNEL, "bpf(2)", Status.OK, "a program of two instructions loads", data=data)
    yield _jit(host, trial)


def _jit(host: Host, trial: BpfTrial) -> Finding:
    enabled = host.number("proc/sys/net/core/bpf_jit_enable")
    data = {"bpf_jit_enable": enabled, "machine_code_bytes": trial.machine_code_bytes}
    if trial.machine_code_bytes:
        detail = f"programs run as machine code ({trial.machine_code_bytes} bytes for the smallest)"
        return Finding(KERNEL, "JIT", Status.OK, detail, data=data)
    if enabled == 0:
        return Finding(
            KERNEL, "JIT", Status.WARN, "off: every probe is interpreted, at a multiple of its cost",
            "sysctl -w net.core.bpf_jit_enable=1", features=("count calls",), data=data,
        )  # fmt: skip
    return Finding(
        KERNEL, "JIT", Status.UNKNOWN, "the kernel does not show this user the machine code", data=data
    )


def check_lockdown(host: Host) -> Iterator[Finding]:
    mode = host.once(read_kernel_files).lockdown
    data = {"mode": mode}
    if mode == "confidentiality":
        yield Finding(
            KERNEL, "lockdown", Status.FAIL, "confidentiality: BPF may not read memory",
            "boot with lockdown=integrity", features=("count calls",), data=data,
        )  # fmt: skip
    elif mode is not None:
        yield Finding(KERNEL, "lockdown", Status.OK, mode, data=data)
    elif host.once(try_bpf).error is None:
        detail = "securityfs is not mounted: the mode is not shown; programs load, so it is not in the way"
        yield Finding(KERNEL, "lockdown", Status.OK, detail, data=data)
    else:
        yield Finding(
            KERNEL, "lockdown", Status.UNKNOWN, "securityfs is not mounted, or not for this user",
            "mount -t securityfs securityfs /sys/kernel/security", data=data,
        )  # fmt: skip


def check_settings(host: Host) -> Iterator[Finding]:
    """Settings that people ask about; neither stands in the way of a user with the capabilities."""
    level = host.number("proc/sys/kernel/perf_event_paranoid")
    if level is not None:
        meaning = (
            "users without CAP_PERFMON are refused"
            if level < 3
            else "some distributions' kernels refuse even CAP_PERFMON then; `new libraries` below tries it"
        )
        yield Finding(KERNEL, "perf_event_paranoid", Status.OK, f"{level}: {meaning}", data={"level": level})
    disabled = host.number("proc/sys/kernel/unprivileged_bpf_disabled")
    if disabled is not None:
        meaning = "every user may load programs; hotstage has no use for that"
        if disabled:
            meaning = "users without CAP_BPF may load nothing; a user with it may"
        yield Finding(
            KERNEL, "unprivileged_bpf_disabled", Status.OK, f"{disabled}: {meaning}", data={"value": disabled}
        )
    yield from _perf_memory(host)


def _perf_memory(host: Host) -> Iterator[Finding]:
    allowed = host.number("proc/sys/kernel/perf_event_mlock_kb")
    if allowed is None:
        return
    user_access = host.number("proc/sys/kernel/perf_user_access")  # arm64 only
    data = {
        "perf_event_mlock_kb": allowed,
        "needed_kb": _SIDEBAND_KIB_PER_CPU,
        "perf_user_access": user_access,
    }
    detail = f"{allowed} KiB a CPU, of which the records of new mappings take {_SIDEBAND_KIB_PER_CPU}"
    if user_access is not None:
        detail += f"; perf_user_access {user_access} does not matter here"
    if allowed >= _SIDEBAND_KIB_PER_CPU:
        yield Finding(KERNEL, "perf_event_mlock_kb", Status.OK, detail, data=data)
    else:
        yield Finding(
            KERNEL, "perf_event_mlock_kb", Status.WARN, detail,
            f"sysctl -w kernel.perf_event_mlock_kb={4 * _SIDEBAND_KIB_PER_CPU}",
            features=("notice new libraries",), data=data,
        )  # fmt: skip


def check_clock(host: Host) -> Iterator[Finding]:
    place = "sys/devices/system/clocksource/clocksource0"
    source = host.text(f"{place}/current_clocksource")
    if source is None:
        yield Finding(KERNEL, "clock source", Status.UNKNOWN, f"/{place} cannot be read")
        return
    source = source.strip()
    data = {"source": source, "available": (host.text(f"{place}/available_clocksource") or "").split()}
    if source in _SLOW_CLOCKS:
        yield Finding(
            KERNEL, "clock source", Status.WARN, f"{source}: each of a probe's looks at the clock is slow",
            "boot with clocksource=tsc (or kvm-clock in a virtual machine) if the hardware's is stable",
            features=("count calls",), data=data,
        )  # fmt: skip
    else:
        yield Finding(KERNEL, "clock source", Status.OK, source, data=data)
