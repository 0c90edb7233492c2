# SPDX-License-Identifier: Apache-2.0
"""What `doctor` finds by trying: programs are loaded and linked to a scratch file, ports bound, files made,
and let go.

Nothing of it stays, and no running process is probed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hotstage.cli.doctor_checks import Finding, Status
from hotstage.errors import AttachError, HotstageError, PrivilegeError
from hotstage.probes.discovery.libraries import close_library, is_library, library_kind, open_library
from hotstage.probes.discovery.processes import ProcessTable, distinct_files, printable
from hotstage.probes.discovery.sideband import Sideband
from hotstage.probes.loader.base import MapSizes, Rung
from hotstage.probes.loader.libbpf import LibbpfLoader

_TRIAL_SIZES = MapSizes(
    threads=64,
    call_stats=64,
    call_histograms=8,
    pipeline_state=64,
    contexts=64,
    events_bytes=4096,
    urgent_bytes=4096,
)
_LEAST_FREE_BYTES = 256 << 20
_RUNGS = {
    Rung.SESSION: "S: one uprobe.session link per library",
    Rung.MULTI: "M: a uprobe.multi pair per library",
    Rung.PERF: "P: perf-event links, 0.1 s each to detach, and CAP_SYS_ADMIN",
}


def try_libbpf() -> Iterator[Finding]:
    """Load the programs on the best rung and link them for real."""
    try:
        loader = LibbpfLoader()
    except HotstageError as error:
        yield Finding("probes", "libbpf", Status.WARN, error.message, error.remedy)
        return
    yield Finding("probes", "libbpf", Status.OK, libbpf_version())
    try:
        rung = loader.load(_TRIAL_SIZES).rung
    except HotstageError as error:
        is_permission = isinstance(error, PrivilegeError)
        yield Finding("probes", "rung", Status.FAIL, error.message, error.remedy, is_permission)
        return
    finally:
        loader.close()
    better = "; ".join(f"{name} refused: {_first_line(why)}" for name, why in loader.refusals.items())
    status = Status.WARN if rung is Rung.PERF else Status.OK
    remedy = "Linux 6.6 or newer" if rung is Rung.PERF else None
    yield Finding("probes", "rung", status, "; ".join(filter(None, (_RUNGS[rung], better))), remedy)


def try_sideband() -> Iterator[Finding]:
    """Open perf's side-band as discovery does."""
    try:
        Sideband().close()
    except PrivilegeError as error:
        yield Finding("probes", "new libraries", Status.FAIL, error.message, error.remedy, is_permission=True)
    except OSError as error:
        yield Finding("probes", "new libraries", Status.FAIL, str(error), "a kernel with CONFIG_PERF_EVENTS")
    else:
        yield Finding(
            "probes", "new libraries", Status.OK, "mapping records of all processes can be followed"
        )


def find_libraries(proc_root: Path) -> Iterator[Finding]:
    """CUDA and marks libraries of running processes, and whether each could be opened."""
    table = ProcessTable(proc_root)
    users: Counter[tuple[str, str, str]] = Counter()
    for pid in table.pids():
        view = table.look(pid, is_library)
        for mapping in distinct_files(view.mappings) if view else ():
            try:
                parsed = open_library(proc_root, pid, mapping)
                close_library(parsed)
                problem = ""
            except AttachError as error:
                problem = error.message
            users[library_kind(mapping.path) or "", printable(mapping.path), problem] += 1
    if not users:
        yield Finding(
            "libraries", "in use", Status.OK, "none now; hotstage attaches when a process opens one"
        )
    for (kind, path, problem), count in sorted(users.items()):
        status = Status.WARN if problem else Status.OK
        detail = f"{path} in {count} process{'es' * (count > 1)}" + (f": {problem}" if problem else "")
        yield Finding("libraries", kind, status, detail)


def try_port(name: str, listen: str) -> Iterator[Finding]:
    """Whether the address can be bound now."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        detail = f"{listen}: {'in use (by hotstage itself, if it runs)' if in_use else error.strerror}"
        yield Finding(
            "places", name, Status.WARN, detail, "free it, or set another address in the configuration"
        )
    else:
        yield Finding("places", name, Status.OK, f"{listen} is free")


def try_directory(name: str, directory: str) -> Iterator[Finding]:
    """Whether state can be written there, or the directory made; leaves nothing behind."""
    place = Path(directory)
    existing = next(folder for folder in (place, *place.parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            free_bytes = shutil.disk_usage(existing).free
    except OSError as error:
        denied = error.errno in (errno.EACCES, errno.EPERM)
        detail = f"{directory}: {error.strerror}"
        yield Finding("places", name, Status.FAIL, detail, "set store.directory, or give it away", denied)
        return
    if free_bytes < _LEAST_FREE_BYTES:
        yield Finding("places", name, Status.WARN, f"{directory}: {free_bytes >> 20} MiB free", "make room")
        return
    what = "writable" if existing == place else f"will be made in {existing}"
    yield Finding("places", name, Status.OK, f"{directory}: {what}, {free_bytes >> 30} GiB free")


def tracefs_events(root: Path = Path("/")) -> frozenset[str] | None:
    """`group/name` of every tracepoint; mounted for a moment in a child's own namespace when nobody has it
    mounted.
    """
    for place in ("sys/kernel/tracing/events", "sys/kernel/debug/tracing/events"):
        found = list_events(root / place)
        if found:
            return found
    return _events_by_private_mount() if root == Path("/") else None


def list_events(folder: Path) -> frozenset[str]:
    try:
        return frozenset(f"{e.parent.name}/{e.name}" for e in folder.glob("*/*") if (e / "format").exists())
    except OSError:
        return frozenset()


def _events_by_private_mount() -> frozenset[str] | None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        libc = ctypes.CDLL(None)
        place = b"/sys/kernel/tracing"
        if libc.unshare(0x20000) == 0 and libc.mount(b"none", b"/", None, 1 << 18 | 1 << 14, None) == 0:
            libc.mount(b"tracefs", place, b"tracefs", 0, None)
        with os.fdopen(writing, "w") as pipe:
            pipe.write("\n".join(list_events(Path(os.fsdecode(place)) / "events")))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        names = pipe.read().split()
    os.waitpid(child, 0)
    return frozenset(names) or None


def libbpf_version() -> str:
    library = ctypes.CDLL("libbpf.so.1")
    library.libbpf_version_string.restype = ctypes.c_char_p
    text = library.libbpf_version_string().decode()
    return str(text)


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else "no reason given"
