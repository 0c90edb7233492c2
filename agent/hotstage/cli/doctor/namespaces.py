# SPDX-License-Identifier: Apache-2.0
"""Checks of what surrounds this process: cgroups, process ids, user namespace, sandbox, memory."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator

from hotstage.cli.doctor.finding import Area, Finding, Status, plural
from hotstage.cli.doctor.host import Host
from hotstage.cli.doctor.kernel_files import read_kernel_files
from hotstage.cli.doctor.rungs import first_rung
from hotstage.host.limits import read_limits

KERNEL = Area.KERNEL
_HOST_PID_NAMESPACE = "pid:[4026531836]"
_ALL_IDS = ("0", "0", "4294967295")
_AGENT_BYTES = 100 << 20
_SECCOMP = {"0": "off", "1": "strict", "2": "filtered"}


def check_cgroups(host: Host) -> Iterator[Finding]:
    for below, how in (
        ("", "the only hierarchy"),
        ("unified", "beside version 1, which holds the controllers"),
    ):
        place = f"sys/fs/cgroup/{below}".rstrip("/")
        if (host.root / place / "cgroup.controllers").exists():
            yield Finding(KERNEL, "cgroup v2", Status.OK, f"at /{place}, {how}", data={"mount": f"/{place}"})
            return
    yield Finding(
        KERNEL, "cgroup v2", Status.WARN, "absent: equal request ids in two containers cannot be told apart",
        "mount cgroup2 (boot with systemd.unified_cgroup_hierarchy=1)", features=("requests by container",),
        data={"mount": None},
    )  # fmt: skip


def check_process_ids(host: Host) -> Iterator[Finding]:
    """Whether this is the host's own process table, and all of it."""
    try:
        namespace = os.fspath((host.proc / "self/ns/pid").readlink())
        seen = sum(entry.name.isdecimal() for entry in host.proc.iterdir())
    except OSError as error:
        yield Finding(KERNEL, "process ids", Status.UNKNOWN, f"{host.proc}: {error.strerror}")
        return
    hidden = re.search(
        r"^\S+ /proc \S+ (?:\S*,)?hidepid=([1-9]\w*|\w*[a-z]\w*)", host.text("proc/mounts") or "", re.M
    )
    data = {"namespace": namespace, "processes": seen, "hidepid": hidden[1] if hidden else None}
    if namespace != _HOST_PID_NAMESPACE:
        yield Finding(
            KERNEL, "process ids", Status.WARN,
            f"a container's own: {plural(seen, 'process')} of it are seen, the host's others are not",
            "hostPID: true (Kubernetes), --pid=host (podman, docker)", features=("processes of the host",),
            data=data,
        )  # fmt: skip
    elif hidden:
        yield Finding(
            KERNEL, "process ids", Status.WARN,
            f"/proc is mounted with hidepid={hidden[1]}: without CAP_SYS_PTRACE other users' are not seen",
            "mount -o remount,hidepid=0 /proc, or CAP_SYS_PTRACE", features=("processes of other users",),
            data=data,
        )  # fmt: skip
    else:
        yield Finding(
            KERNEL, "process ids", Status.OK, f"the host's: {plural(seen, 'process')} seen", data=data
        )


def check_sandbox(host: Host) -> Iterator[Finding]:
    """User namespace, seccomp and security module of this very process."""
    status = host.text("proc/self/status") or ""
    ids = (host.text("proc/self/uid_map") or "").split()
    seccomp = _SECCOMP.get(_field(status, "Seccomp"), "unknown")
    profile = (host.text("proc/self/attr/current") or "").strip("\0 ") or "none"
    data = {
        "user_namespace": "own" if ids and tuple(ids) != _ALL_IDS else "host",
        "seccomp": seccomp,
        "no_new_privileges": _field(status, "NoNewPrivs") == "1",
        "security_profile": profile,
        "security_modules": host.once(read_kernel_files).modules,
    }
    detail = f"user namespace {data['user_namespace']}, seccomp {seccomp}, security profile {profile}"
    if data["user_namespace"] == "own":
        yield Finding(
            KERNEL, "sandbox", Status.WARN,
            f"{detail}: capabilities of such a namespace do not count for BPF",
            "run it in the host's user namespace (rootful, without userns)", features=("count calls",),
            data=data,
        )  # fmt: skip
    else:
        yield Finding(KERNEL, "sandbox", Status.OK, detail, data=data)


def check_memory(host: Host) -> Iterator[Finding]:
    """What the kernel's maps take at the configured sizes, and who pays for it."""
    maps_bytes = first_rung(host).maps_bytes
    lockable, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = read_limits(os.getpid(), host.proc, host.root / "sys/fs/cgroup").memory_bytes
    data = {
        "maps_bytes": maps_bytes,
        "cgroup_limit_bytes": limit,
        "memlock_bytes": None if lockable == resource.RLIM_INFINITY else lockable,
    }
    told = "unlimited" if limit is None else f"limited to {limit >> 20} MiB"
    if maps_bytes is None:
        detail = (
            f"BPF memory counts for the cgroup ({told} here), not for RLIMIT_MEMLOCK; no map could be made"
        )
        yield Finding(KERNEL, "memory", Status.UNKNOWN, detail, data=data)
        return
    detail = (
        f"the maps take {maps_bytes / 2**20:.1f} MiB at the configured sizes, counted for the cgroup ({told}"
        " here), not for RLIMIT_MEMLOCK"
    )
    if limit is not None and limit < maps_bytes + _AGENT_BYTES:
        yield Finding(
            KERNEL, "memory", Status.WARN, f"{detail}; the agent itself takes up to {_AGENT_BYTES >> 20} MiB",
            "raise the memory limit, or lower call_keys and histogram_slots in [probes]",
            features=("count calls",), data=data,
        )  # fmt: skip
    else:
        yield Finding(KERNEL, "memory", Status.OK, detail, data=data)


def _field(status: str, name: str) -> str:
    match = re.search(rf"^{name}:\s*(\S+)", status, re.MULTILINE)
    return match[1] if match else ""
