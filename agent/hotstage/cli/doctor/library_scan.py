# SPDX-License-Identifier: Apache-2.0
"""CUDA and marks libraries of the processes that run now, by the agent's own discovery, each look with a
deadline.

Nothing is attached. What this user may not see is counted, and what hangs is named, not waited for.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from hotstage.cli.doctor.holders import descriptors
from hotstage.cli.doctor.host import Host
from hotstage.errors import AttachError
from hotstage.host.containers import container_of
from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.spec import Tier
from hotstage.probes.discovery.libraries import ParsedLibrary, is_library, library_kind
from hotstage.probes.discovery.lookups import Lookups, Outcome
from hotstage.probes.discovery.processes import (
    Mapping,
    ProcessTable,
    ProcessView,
    distinct_files,
    printable,
)
from hotstage.probes.discovery.targets import Candidate, MissedSymbol, discard_candidate, inspect_library
from hotstage.probes.loader.base import AttachPoint
from hotstage.probes.trial.harmless import NOTHING_HARMLESS, functions_by_rule, why_not

LOOK_SECONDS = 1.0
SCAN_SECONDS = 1.8
Points = tuple[AttachPoint, ...]
FileKey = tuple[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class User:
    """One process that has mapped a library. `container` None: a process of the host, as far as it shows."""

    pid: int
    name: str
    container: str | None
    own_mounts: bool
    """It lives in another mount namespace than this process."""
    is_deleted: bool
    """The file that it has mapped is deleted."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the agent would do with a library. `is_patched` None: its memory may not be read.

    `tried_by`: what it would call in a process of its own first; `untried`: why nothing, else None.
    """

    build_id: str | None
    points: int
    emulated: int
    calls: int
    calls_known: int
    missed: tuple[MissedSymbol, ...]
    is_patched: bool | None
    is_unlinked: bool
    tried_by: tuple[str, ...] = ()
    untried: str | None = None


@dataclass(slots=True, eq=False)
class LibraryFile:
    """One file and its users; exactly one of `plan` and `problem` is set."""

    kind: str
    path: str
    users: list[User] = field(default_factory=list)
    plan: Plan | None = None
    problem: str | None = None
    is_stuck: bool = False
    """Opening it hangs: it is not tried through another process."""
    ways: list[tuple[int, Mapping]] = field(default_factory=list)
    """Processes through which it was not tried to be opened yet, with their mappings."""


@dataclass(slots=True)
class Scan:
    """`looked` processes were read; the lists name those that were not, or in part, for people."""

    libraries: list[LibraryFile] = field(default_factory=list)
    looked: int = 0
    refused: list[str] = field(default_factory=list)
    truncated: list[str] = field(default_factory=list)
    hanging: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    """Processes that hold an NVIDIA device and map no library that is known."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Looked:
    """One process: `view` is None when it has gone, or when it `is_refused`."""

    view: ProcessView | None
    is_refused: bool
    user: User | None
    holds_device: bool


def scan_libraries(host: Host) -> Scan:
    """A trial for `Host.once`."""
    began = time.monotonic()
    table, scan = ProcessTable(host.proc), Scan()
    lookups = Lookups(LOOK_SECONDS, time.monotonic_ns)
    files: dict[FileKey, LibraryFile] = {}
    has_devices = any((host.root / "dev").glob("nvidia*"))

    def settle(outcome: Outcome) -> None:
        match outcome.key:
            case ("look", int(pid)):
                _take(scan, files, host, pid, outcome, lookups)
            case ("open", LibraryFile() as file):
                _plan(scan, file, outcome)
                if isinstance(outcome.error, AttachError):
                    _open(host, file, lookups)

    try:
        for pid in _pids(table):
            lookups.submit(("look", pid), ("process", pid), _looking(table, pid, has_devices))
        _drain(lookups, settle, began + SCAN_SECONDS)
        if lookups.pending:
            scan.hanging.append(f"{lookups.pending} looks were not over after {SCAN_SECONDS:g} s")
    finally:
        lookups.close()
    scan.libraries = sorted(files.values(), key=lambda file: (file.kind, file.path))
    for file in scan.libraries:
        file.users.sort(key=lambda user: user.pid)
    scan.seconds = time.monotonic() - began
    return scan


def _pids(table: ProcessTable) -> list[int]:
    """All but this process and its children: the child that asks NVML may map libcuda."""
    own = os.getpid()
    return [pid for pid in table.pids() if pid != own and _parent(table.root, pid) != own]


def _parent(root: Path, pid: int) -> int | None:
    try:
        return int((root / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _drain(lookups: Lookups, settle: Callable[[Outcome], None], end: float) -> None:
    while lookups.pending and time.monotonic() < end:
        select.select([lookups.wake_fd], [], [], 0.02)
        for outcome in lookups.finished():
            settle(outcome)


def _looking(table: ProcessTable, pid: int, has_devices: bool) -> Callable[[], _Looked]:
    return lambda: _look(table, pid, has_devices)


def _look(table: ProcessTable, pid: int, has_devices: bool) -> _Looked:
    view = table.look(pid, is_library)
    process = table.root / str(pid)
    if view is None:
        return _Looked(None, _is_refused(process), None, holds_device=False)
    holds_device = (
        has_devices
        and not view.mappings
        and any(target.startswith("/dev/nvidia") for target in descriptors(process))
    )
    user = _user(process, view) if view.mappings or holds_device else None
    return _Looked(view, False, user, holds_device)


def _is_refused(process: Path) -> bool:
    try:
        (process / "maps").open("rb").close()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _user(process: Path, view: ProcessView) -> User:
    try:
        cgroup = (process / "cgroup").read_text("utf-8", "replace")
    except OSError:
        cgroup = ""
    mounts, own = _link(process / "ns/mnt"), _link(process.parent / "self/ns/mnt")
    return User(
        pid=view.identity.pid,
        name=printable(view.name, 64),
        container=container_of(cgroup),
        own_mounts=bool(mounts) and mounts != own,
        is_deleted=False,
    )


def _take(
    scan: Scan, files: dict[FileKey, LibraryFile], host: Host, pid: int, outcome: Outcome, lookups: Lookups
) -> None:
    if outcome.error is not None:
        scan.hanging.append(f"process {pid}: {outcome.error}")
        return
    looked: _Looked = outcome.result
    if looked.is_refused:
        scan.refused.append(f"{pid} {ProcessTable(host.proc).name(pid)}")
    if looked.view is None:
        return
    scan.looked += 1
    if looked.view.is_truncated:
        scan.truncated.append(f"{pid} {printable(looked.view.name, 64)}")
    if looked.holds_device and looked.user is not None:
        scan.strangers.append(f"{pid} {looked.user.name}")
    for mapping in distinct_files(looked.view.mappings):
        key = (mapping.device, mapping.inode)
        file = files.get(key)
        is_new = file is None
        if file is None:
            file = files[key] = LibraryFile(library_kind(mapping.path) or "", printable(mapping.path))
        if looked.user is not None:
            file.users.append(replace(looked.user, is_deleted=mapping.is_deleted))
        file.ways.append((pid, mapping))
        if is_new or (file.problem is not None and not file.is_stuck):
            _open(host, file, lookups)


def _open(host: Host, file: LibraryFile, lookups: Lookups) -> None:
    """Through the next of its users: what one cannot show (another root, gone already) another may."""
    if file.ways:
        pid, mapping = file.ways.pop(0)
        file.problem = None
        lookups.submit(("open", file), ("device", mapping.device), _inspecting(host, pid, mapping))


def _inspecting(host: Host, pid: int, mapping: Mapping) -> Callable[[], Plan]:
    proc, fast, tier = host.proc, host.config.probes.fast_placement, Tier[host.config.probes.tier]

    def inspect() -> Plan:
        harmless: list[str] = []

        def note(parsed: ParsedLibrary, points: Points, _pid: int) -> tuple[Points, None]:
            harmless.extend(functions_by_rule(parsed).values())
            return points, None

        candidate = inspect_library(proc, pid, mapping, fast_placement=fast, tier=tier, try_out=note)
        try:
            kind = candidate.parsed.library.kind
            known = next((spec for spec in LIBRARIES if spec.kind == kind), None)
            return Plan(
                build_id=candidate.parsed.library.build_id,
                points=len(candidate.points),
                emulated=sum(point.is_emulated for point in candidate.points),
                calls=len({point.call_id for point in candidate.points}),
                calls_known=len(known.calls) if known else 0,
                missed=candidate.missed,
                is_patched=candidate.is_patched if _may_read_memory(proc, pid) else None,
                is_unlinked=candidate.parsed.unlinked,
                tried_by=tuple(harmless),
                untried=why_not(kind) or _untried(harmless, candidate),
            )
        finally:
            discard_candidate(candidate)

    return inspect


def _untried(harmless: list[str], candidate: Candidate) -> str | None:
    if harmless:
        return None
    return "it carries probes already" if candidate.is_patched else NOTHING_HARMLESS


def _may_read_memory(proc: Path, pid: int) -> bool:
    try:
        os.close(os.open(proc / str(pid) / "mem", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _plan(scan: Scan, file: LibraryFile, outcome: Outcome) -> None:
    if outcome.error is None:
        file.plan = outcome.result
    else:
        file.problem = str(outcome.error)
        if isinstance(outcome.error, TimeoutError):
            file.is_stuck = True
            scan.hanging.append(f"{file.path}: {outcome.error}")


def _link(file: Path) -> str:
    try:
        return os.fspath(file.readlink())
    except OSError:
        return ""
