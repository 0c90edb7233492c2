# SPDX-License-Identifier: Apache-2.0
"""Which Linux capability the agent needs for what: the one table that `doctor`, the units and the manifests
follow.

A table and pure look-ups: it asks the host nothing. The needs were measured one by one, as another user with
exactly these capabilities.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Need(StrEnum):
    """How much the agent misses a capability."""

    ALWAYS = "always"
    """Without it the agent watches nothing, or only a part of the host."""
    FEATURE = "feature"
    """Without it one named thing is missing."""
    OLD_KERNELS = "old kernels"
    """Only where the kernel has no `uprobe.multi` (before Linux 6.6), or tracefs is not mounted for bcc."""
    NEVER = "never"
    """Often asked for by tools of this kind; nothing here uses it."""


@dataclass(frozen=True, slots=True)
class Capability:
    """One capability: `number` as in linux/capability.h, `purpose` completes "the agent can …"."""

    name: str
    number: int
    need: Need
    purpose: str


@dataclass(frozen=True, slots=True)
class Feature:
    """One thing that the agent does and all capabilities it takes; `loss` is what happens without them."""

    name: str
    needs: tuple[str, ...]
    loss: str


CAPABILITIES: tuple[Capability, ...] = (
    Capability("CAP_BPF", 39, Need.ALWAYS, "load BPF programs and make their maps"),
    Capability("CAP_PERFMON", 38, Need.ALWAYS, "attach probes and tracepoints, follow new mappings"),
    Capability(
        "CAP_SYS_PTRACE", 19, Need.ALWAYS, "look into processes of other users and into their file systems"
    ),
    Capability(
        "CAP_DAC_READ_SEARCH", 2, Need.ALWAYS,
        "open libraries, process memory and tracefs past their file permissions",
    ),
    Capability("CAP_CHECKPOINT_RESTORE", 40, Need.FEATURE, "open libraries that were deleted or replaced"),
    Capability(
        "CAP_SYS_ADMIN", 21, Need.OLD_KERNELS,
        "make perf-event links (kernels before 6.6), and mount tracefs for itself where nobody has",
    ),
    Capability(
        "CAP_SYSLOG", 34, Need.NEVER, "read /dev/kmsg; XID lines come through a tracepoint without it"
    ),
    Capability(
        "CAP_SYS_RESOURCE", 24, Need.NEVER,
        "raise RLIMIT_MEMLOCK; BPF memory has not counted against it since Linux 5.11",
    ),
)  # fmt: skip

FEATURES: tuple[Feature, ...] = (
    Feature("count calls", ("CAP_BPF", "CAP_PERFMON"), "nothing is counted"),
    Feature(
        "count calls on rung P",
        ("CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN"),
        "nothing is counted on kernels before 6.6",
    ),
    Feature(
        "notice new libraries", ("CAP_PERFMON",), "the agent does not start: it could not follow mappings"
    ),
    Feature("XID lines of the kernel log", ("CAP_BPF", "CAP_PERFMON"), "XIDs come from NVML alone"),
    Feature(
        "processes of other users",
        ("CAP_SYS_PTRACE",),
        "libraries of processes of other users are not found",
    ),
    Feature(
        "libraries behind file permissions",
        ("CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"),
        "a library in a home or a container that others may not enter is not attached",
    ),
    Feature(
        "libraries that are probed already",
        ("CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"),
        "one library seen through two overlay mounts is attached, and counted, twice",
    ),
    Feature(
        "deleted libraries",
        ("CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_CHECKPOINT_RESTORE"),
        "a library that was replaced under a running process is not attached until it restarts",
    ),
)

_SYS_ADMIN_STANDS_FOR = ("CAP_BPF", "CAP_PERFMON", "CAP_CHECKPOINT_RESTORE")


def names(*needs: Need) -> tuple[str, ...]:
    """The capabilities of these needs, in the table's order."""
    return tuple(capability.name for capability in CAPABILITIES if capability.need in needs)


LEAST = names(Need.ALWAYS)
"""What every deployment grants."""
USUAL = names(Need.ALWAYS, Need.FEATURE)
"""What the service and the DaemonSet grant on kernels that have `uprobe.multi` (6.6 and newer)."""
OLD_KERNELS = names(Need.ALWAYS, Need.FEATURE, Need.OLD_KERNELS)
"""What they grant on kernels before 6.6."""


def held(mask: int) -> frozenset[str]:
    """Names of the table that are in a mask of `/proc/PID/status`; what CAP_SYS_ADMIN stands for included."""
    present = {capability.name for capability in CAPABILITIES if mask >> capability.number & 1}
    if "CAP_SYS_ADMIN" in present:
        present.update(_SYS_ADMIN_STANDS_FOR)
    return frozenset(present)


def features_of(capability: str) -> tuple[Feature, ...]:
    """The features that take this capability."""
    return tuple(feature for feature in FEATURES if capability in feature.needs)


def missing_for(feature: Feature, present: Collection[str]) -> tuple[str, ...]:
    """What a feature still takes, given the names that are `held`."""
    return tuple(name for name in feature.needs if name not in present)
