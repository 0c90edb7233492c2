# SPDX-License-Identifier: Apache-2.0
"""What `doctor` finds by looking: each check reads files below an injected root and says what is there.

Nothing is loaded, attached, opened for writing or imported here (`doctor_trials.py` tries things for real).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hotstage.probes.loader.bindings import INSTALL_BCC, INSTALL_HEADERS, find_bcc, find_headers


class Status(StrEnum):
    OK = "ok"
    ABSENT = "absent"
    """Not there, and nothing is missing without it."""
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `is_permission`: what is missing is a right, not a part."""

    area: str
    name: str
    status: Status
    detail: str
    remedy: str | None = None
    is_permission: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a check looks; a test gives its own."""

    root: Path
    release: str
    search: tuple[Path, ...] | None
    """Where Python packages may be; None: this interpreter's path and the distribution's places."""


CAPABILITIES: tuple[tuple[str, int, str], ...] = (
    ("CAP_BPF", 39, "load BPF programs"),
    ("CAP_PERFMON", 38, "attach them, follow mappings"),
    ("CAP_SYS_PTRACE", 19, "read other processes' mappings"),
    ("CAP_DAC_READ_SEARCH", 2, "open their libraries, read tracefs"),
    ("CAP_CHECKPOINT_RESTORE", 40, "attach to deleted libraries"),
    ("CAP_SYS_ADMIN", 21, "link on kernels before 6.6, and make bcc's private mounts"),
)
_SYS_ADMIN_STANDS_FOR = ("CAP_BPF", "CAP_PERFMON", "CAP_CHECKPOINT_RESTORE")
_OLDEST_KERNEL = (5, 15)

TRACEPOINTS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "queue_submit",
        (
            "nv_gpu/queue_submit",
            "gpu_scheduler/drm_run_job",
            "gpu_scheduler/drm_sched_job_run",
            "amdgpu/amdgpu_cs_ioctl",
            "i915/i915_request_submit",
            "xe/xe_sched_job_run",
        ),
        "work handed to the GPU (NVIDIA submits from user space: the driver's launch calls stand for it)",
    ),
    ("fences", ("dma_fence/dma_fence_signaled",), "when submitted GPU work completed (DRM drivers)"),
    ("gpu memory", ("gpu_mem/gpu_mem_total",), "GPU memory per process without NVML (DRM drivers)"),
    ("nvidia xid", ("nvidia/nvidia_dev_xid",), "XIDs at the driver itself"),
    ("kernel log", ("printk/console",), "XID lines of the kernel log"),
    ("oom kills", ("oom/mark_victim",), "which process the kernel killed for memory"),
)
_OF_EVERY_KERNEL = ("kernel log", "oom kills")


def check_kernel(at: Surroundings) -> Iterator[Finding]:
    """Version, BTF, lockdown, cgroups, process ids."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", at.release)[:2])
    is_new_enough = numbers >= _OLDEST_KERNEL
    yield Finding(
        "kernel", "version", Status.OK if is_new_enough else Status.FAIL, at.release,
        None if is_new_enough else "Linux 5.15 or newer; 6.6 to do without CAP_SYS_ADMIN, 6.13 for rung S",
    )  # fmt: skip
    has_btf = (at.root / "sys/kernel/btf/vmlinux").exists()
    yield Finding(
        "kernel", "BTF", Status.OK if has_btf else Status.WARN,
        "/sys/kernel/btf/vmlinux" if has_btf else "absent: rung S is not possible, M and P are",
        None if has_btf else "a kernel with CONFIG_DEBUG_INFO_BTF",
    )  # fmt: skip
    lockdown = re.search(r"\[(\w+)\]", _text(at.root / "sys/kernel/security/lockdown"))
    mode = lockdown[1] if lockdown else "none"
    is_locked = mode == "confidentiality"
    yield Finding(
        "kernel", "lockdown", Status.FAIL if is_locked else Status.OK, mode,
        "this mode forbids BPF to read memory: boot with lockdown=integrity" if is_locked else None,
    )  # fmt: skip
    has_v2 = any(
        (at.root / "sys/fs/cgroup" / below / "cgroup.controllers").exists() for below in ("", "unified")
    )
    yield Finding(
        "kernel", "cgroup v2", Status.OK if has_v2 else Status.WARN,
        "mounted" if has_v2 else "absent: equal request ids in two containers cannot be told apart",
        None if has_v2 else "mount cgroup2 (systemd.unified_cgroup_hierarchy=1)",
    )  # fmt: skip
    is_host = _link(at.root / "proc/self/ns/pid") in ("", "pid:[4026531836]")
    yield Finding(
        "kernel", "process ids", Status.OK if is_host else Status.WARN,
        "the host's" if is_host else "a container's own: only its processes are seen",
        None if is_host else "run with --pid=host (Kubernetes: hostPID: true)",
    )  # fmt: skip


def check_capabilities(at: Surroundings) -> Iterator[Finding]:
    """Which of the capabilities are effective, and what the missing ones cost."""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)", _text(at.root / "proc/self/status"), re.MULTILINE)
    effective = int(match[1], 16) if match else 0
    is_admin = bool(effective >> 21 & 1)
    for name, bit, purpose in CAPABILITIES:
        has = bool(effective >> bit & 1)
        if has or (is_admin and name in _SYS_ADMIN_STANDS_FOR):
            yield Finding("privileges", name, Status.OK, f"can {purpose}")
        elif name == "CAP_SYS_ADMIN":  # the trial of the rungs says whether this kernel needs it
            yield Finding("privileges", name, Status.OK, f"not held; it would {purpose}")
        else:
            status = Status.WARN if name == "CAP_CHECKPOINT_RESTORE" else Status.FAIL
            remedy = "run as root, or grant it"
            yield Finding("privileges", name, status, f"missing: cannot {purpose}", remedy, True)


def check_compilers(at: Surroundings, checkout: Path | None) -> Iterator[Finding]:
    """bcc or its impostor, headers, and clang where there is a source checkout."""
    bindings = find_bcc(at.search)
    if bindings.package is not None:
        yield Finding(
            "compilers", "bcc", Status.OK, f"{bindings.version or 'unknown version'} in {bindings.package}"
        )
    else:
        yield Finding(
            "compilers", "bcc", Status.WARN,
            "absent: no `--loader bcc`; XID lines come through libbpf", INSTALL_BCC,
        )  # fmt: skip
    for impostor in bindings.impostors:
        yield Finding(
            "compilers", "bcc impostor", Status.WARN,
            f"{impostor} is another project of that name; it is not used", "pip uninstall bcc",
        )  # fmt: skip
    headers = find_headers(at.root, at.release)
    if headers is None:
        yield Finding("compilers", "kernel headers", Status.WARN, "none: bcc cannot compile", INSTALL_HEADERS)
    else:
        kind = (
            "this kernel's"
            if headers.is_exact
            else f"those of {headers.release}, which suffice for these programs"
        )
        yield Finding("compilers", "kernel headers", Status.OK, kind)
    if checkout is not None:
        clang = shutil.which("clang")
        yield Finding(
            "compilers", "clang", Status.OK if clang else Status.WARN,
            clang or "absent: bpf/ cannot be built here", None if clang else "apt install clang llvm",
        )  # fmt: skip


def check_tracepoints(events: frozenset[str] | None) -> Iterator[Finding]:
    """`events` are tracefs's `group/name`; None when tracefs cannot be read."""
    if events is None:
        yield Finding(
            "tracepoints", "tracefs", Status.WARN, "not mounted or not readable: present events are unknown",
            "mount -t tracefs tracefs /sys/kernel/tracing, and CAP_DAC_READ_SEARCH",
        )  # fmt: skip
        return
    for name, candidates, gives in TRACEPOINTS:
        present = [candidate.replace("/", ":") for candidate in candidates if candidate in events]
        if present:
            yield Finding("tracepoints", name, Status.OK, f"present: {', '.join(present)}; gives {gives}")
            continue
        absent = f"none of {', '.join(c.replace('/', ':') for c in candidates)}; would give {gives}"
        is_odd = name in _OF_EVERY_KERNEL
        yield Finding("tracepoints", name, Status.WARN if is_odd else Status.ABSENT, absent)


def check_nvml(at: Surroundings, configured: str | None) -> Iterator[Finding]:
    """NVML by looking for its file (never by loading it), and whether it fits the loaded driver."""
    library = find_nvml(at, configured)
    match = re.search(r"\b(\d{3,4}\.\d+(?:\.\d+)?)\b", _text(at.root / "proc/driver/nvidia/version"))
    driver = match[1] if match else None
    yield Finding(
        "gpu", "driver", Status.OK, f"NVIDIA {driver}" if driver else "no NVIDIA driver is loaded",
    )  # fmt: skip
    if library is None:
        yield Finding(
            "gpu", "NVML", Status.WARN, "libnvidia-ml.so.1 is not found: no device values",
            "install the driver's libraries, or set devices.library_directory",
        )  # fmt: skip
        return
    version = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", library.resolve().name)
    if driver and version and version[1] != driver:
        yield Finding(
            "gpu", "NVML", Status.WARN, f"{library} is {version[1]}, the loaded driver {driver}",
            "reboot, or reload the driver: NVML refuses to talk across versions",
        )  # fmt: skip
        return
    yield Finding("gpu", "NVML", Status.OK, str(library))


def find_nvml(at: Surroundings, configured: str | None) -> Path | None:
    """The file that the devices process would load; the usual places when none is configured."""
    usual = (
        *(f"usr/lib/{triple}" for triple in ("x86_64-linux-gnu", "aarch64-linux-gnu")),
        *("usr/lib64", "usr/lib", "usr/local/nvidia/lib64", "usr/lib/wsl/lib", "run/opengl-driver/lib"),
    )
    own = [Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if entry]
    folders = [Path(configured)] if configured else [*own, *(at.root / entry for entry in usual)]
    return next((f / "libnvidia-ml.so.1" for f in folders if (f / "libnvidia-ml.so.1").exists()), None)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""


def _link(file: Path) -> str:
    try:
        return str(file.readlink())
    except OSError:
        return ""
