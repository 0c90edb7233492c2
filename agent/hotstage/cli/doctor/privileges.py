# SPDX-License-Identifier: Apache-2.0
"""Capabilities of this process against the one table, and what the agent could really do with them.

What a capability allows is tried, not believed: kernels differ, and sandboxes take away what the sets show.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hotstage.cli.doctor.finding import Area, Finding, Status, plural
from hotstage.cli.doctor.host import Host
from hotstage.cli.doctor.rungs import first_rung, try_rungs, try_sideband
from hotstage.cli.doctor.trivial_program import try_tracepoints
from hotstage.host.capabilities import (
    CAPABILITIES,
    FEATURES,
    Capability,
    Feature,
    Need,
    features_of,
    held,
    missing_for,
)
from hotstage.probes.loader.base import Rung

PRIVILEGES = Area.PRIVILEGES
_STRANGERS_MAX = 64
_CLOSED_SHARE = 10
_NO_RIGHT_MISSING = (
    "no capability is missing: a security module, a sandbox or a user namespace keeps it closed; the kernel"
    " log (dmesg) names who refuses"
)


@dataclass(frozen=True, slots=True)
class Sets:
    """Capability masks of `/proc/self/status`."""

    effective: int
    bounding: int
    ambient: int


@dataclass(frozen=True, slots=True)
class Tried:
    """Whether a feature works here; None: nothing to try it on."""

    works: bool | None
    how: str


def read_sets(host: Host) -> Sets | None:
    """None when procfs does not say."""
    text = host.text("proc/self/status") or ""
    found = dict(re.findall(r"^Cap(Eff|Bnd|Amb):\s*([0-9a-f]+)$", text, re.MULTILINE))
    if "Eff" not in found:
        return None
    return Sets(*(int(found.get(name, "0"), 16) for name in ("Eff", "Bnd", "Amb")))


def check_capabilities(host: Host) -> Iterator[Finding]:
    """One finding a capability of the table."""
    sets = read_sets(host)
    if sets is None:
        yield Finding(PRIVILEGES, "capabilities", Status.UNKNOWN, "/proc/self/status does not list them")
        return
    present = held(sets.effective)
    has_all = all(each.name in present or each.need is not Need.OLD_KERNELS for each in CAPABILITIES)
    best = None if has_all else first_rung(host).best
    for capability in CAPABILITIES:
        yield _judge(capability, capability.name in present, sets, best)


def _judge(capability: Capability, is_held: bool, sets: Sets, best: Rung | None) -> Finding:
    features = tuple(feature.name for feature in features_of(capability.name))
    bit = 1 << capability.number
    data = {
        "need": capability.need.value,
        "effective": bool(sets.effective & bit),
        "bounding": bool(sets.bounding & bit),
        "ambient": bool(sets.ambient & bit),
    }
    if is_held:
        through = "" if sets.effective & bit else " (through CAP_SYS_ADMIN)"
        detail = f"held{through}: can {capability.purpose}"
        if capability.need is Need.NEVER:
            detail = f"held, and nothing here uses it: to {capability.purpose}"
        return Finding(PRIVILEGES, capability.name, Status.OK, detail, features=features, data=data)
    status, detail = _without(capability, best)
    is_needed = status in (Status.FAIL, Status.WARN)
    return Finding(
        PRIVILEGES, capability.name, status, detail, _grant(capability, sets) if is_needed else None,
        status is Status.FAIL, features, data,
    )  # fmt: skip


def _without(capability: Capability, best: Rung | None) -> tuple[Status, str]:
    match capability.need:
        case Need.ALWAYS:
            return Status.FAIL, f"missing: cannot {capability.purpose}"
        case Need.FEATURE:
            return Status.WARN, f"missing: cannot {capability.purpose}"
        case Need.NEVER:
            return Status.ABSENT, f"not held, and nothing here uses it: to {capability.purpose}"
    if best in (Rung.SESSION, Rung.MULTI):
        return Status.ABSENT, f"not held, and not needed on this kernel: rung {best} works without it"
    return Status.UNKNOWN, f"not held: cannot {capability.purpose}; whether it must, no rung has told yet"


def _grant(capability: Capability, sets: Sets) -> str:
    """How to get it; what is outside the bounding set not even root has."""
    if sets.bounding >> capability.number & 1:
        return f"run as root, or AmbientCapabilities={capability.name} in the unit"
    short = capability.name.removeprefix("CAP_")
    return (
        f"outside the bounding set, so root lacks it too: CapabilityBoundingSet={capability.name} (systemd),"
        f" capabilities.add: [{short}] (Kubernetes), --cap-add {short} (podman, docker)"
    )


def check_features(host: Host) -> Iterator[Finding]:
    """What works for this user, each tried for real where there is something to try it on."""
    sets = read_sets(host)
    present = held(sets.effective) if sets else frozenset()
    # The verifier takes its time, most on a busy host: what asks it holds nothing else up, rung P comes last.
    for feature in sorted(
        FEATURES, key=lambda feature: (feature.name.startswith("count calls"), feature.name)
    ):
        tried = _TRIALS[feature.name](host)
        yield _verdict(host, feature, tried, missing_for(feature, present))


def _verdict(host: Host, feature: Feature, tried: Tried, missing: tuple[str, ...]) -> Finding:
    data = {"works": tried.works, "missing": list(missing), "needs": list(feature.needs)}
    features = (feature.name,)
    if tried.works:
        return Finding(
            PRIVILEGES, feature.name, Status.OK, f"works: {tried.how}", features=features, data=data
        )
    if tried.works is None:
        detail = f"not tried: {tried.how}"
        if missing:
            detail += f"; it takes {', '.join(missing)}"
        status = Status.WARN if missing else Status.OK
        remedy = ", ".join(missing) or None
        return Finding(PRIVILEGES, feature.name, status, detail, remedy, features=features, data=data)
    remedy = ", ".join(missing) or _NO_RIGHT_MISSING
    if feature.name == "count calls on rung P" and first_rung(host).best is not None:
        detail = f"does not work ({tried.how}), and is not needed on this kernel"
        return Finding(PRIVILEGES, feature.name, Status.ABSENT, detail, features=features, data=data)
    return Finding(
        PRIVILEGES, feature.name, Status.WARN, f"does not work: {feature.loss} ({tried.how})", remedy,
        features=features, data=data,
    )  # fmt: skip


def _count_calls(host: Host) -> Tried:
    best = first_rung(host).best
    return Tried(best is not None, f"programs load and link on rung {best}" if best else "no rung is taken")


def _count_on_perf(host: Host) -> Tried:
    for trial in host.once(try_rungs).trials:
        if trial.rung is Rung.PERF:
            return Tried(trial.error is None, trial.error or "perf-event links can be made")
    return Tried(None, "no programs could be loaded")


def _notice_libraries(host: Host) -> Tried:
    error = host.once(try_sideband)
    return Tried(error is None, str(error) if error else "perf's records of new mappings can be read")


def _kernel_lines(host: Host) -> Tried:
    trial = try_tracepoints(("console",))["console"]
    return Tried(trial.error is None, trial.error or "a program was attached to printk:console")


def _strangers(host: Host) -> list[Path]:
    """Some processes of other users, as directories of procfs; where there are none, others of this user.

    Root without CAP_SYS_PTRACE may not look into root's processes that have more capabilities. Kernel threads
    are left out: they have no file system to look into.
    """
    others: list[Path] = []
    own: list[Path] = []
    for entry in host.proc.iterdir():
        if not entry.name.isdecimal() or entry.name == str(os.getpid()):
            continue
        try:
            if (entry / "cmdline").read_bytes():
                (own if entry.stat().st_uid == os.geteuid() else others).append(entry)
        except OSError:
            continue
    return (others or own)[:_STRANGERS_MAX]


def _on_strangers(host: Host, attempt: Callable[[Path], object], what: str) -> Tried:
    """One process, or one in ten, may be closed to everybody (a sandbox's first one)."""
    tried, refused = 0, []
    for process in _strangers(host):
        try:
            attempt(process)
        except PermissionError:
            refused.append(process.name)
        except OSError:
            continue  # it has gone meanwhile
        tried += 1
    if not tried:
        return Tried(None, "no other process runs now")
    if len(refused) == tried or len(refused) > max(1, tried // _CLOSED_SHARE):
        return Tried(False, f"{what} of {len(refused)} of {plural(tried, 'other process')} is closed")
    but = f" (closed to everybody: {', '.join(refused)})" if refused else ""
    return Tried(True, f"{what} of {tried - len(refused)} of {plural(tried, 'other process')} is open{but}")


def _enter_root(host: Host) -> Tried:
    return _on_strangers(host, lambda process: os.scandir(process / "root").close(), "the file system")


def _read_memory(host: Host) -> Tried:
    return _on_strangers(host, lambda process: (process / "mem").open("rb").close(), "the memory")


def _read_closed_file(host: Host) -> Tried:
    """A file that nobody may read, not even its owner."""
    with tempfile.NamedTemporaryFile(prefix="hotstage-doctor-") as scratch:
        Path(scratch.name).chmod(0)
        try:
            os.close(os.open(scratch.name, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return Tried(False, "a file without permissions cannot be read")
    inside = _enter_root(host)
    return inside if inside.works is False else Tried(True, "a file without permissions can be read")


def _open_map_files(host: Host) -> Tried:
    """By this very process's own mappings: the kernel asks for the capability all the same."""
    try:
        entries = sorted((host.proc / "self/map_files").iterdir())
        os.close(os.open(entries[0], os.O_PATH | os.O_CLOEXEC))
    except (OSError, IndexError) as error:
        return Tried(False, f"map_files: {error.strerror if isinstance(error, OSError) else 'empty'}")
    inside = _read_memory(host)
    return inside if inside.works is False else Tried(True, "mapped files can be opened without their names")


_TRIALS: dict[str, Callable[[Host], Tried]] = {
    "count calls": _count_calls,
    "count calls on rung P": _count_on_perf,
    "notice new libraries": _notice_libraries,
    "XID lines of the kernel log": _kernel_lines,
    "processes of other users": _enter_root,
    "libraries behind file permissions": _read_closed_file,
    "libraries that are probed already": _read_memory,
    "deleted libraries": _open_map_files,
}
