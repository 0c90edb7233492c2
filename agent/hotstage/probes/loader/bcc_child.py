# SPDX-License-Identifier: Apache-2.0
"""The short-lived process that alone imports bcc: compiles, loads, hands descriptors over and is gone.

    python -m hotstage.probes.loader.bcc_child FD      (FD: one end of a Unix stream socket)

Reads one request (JSON, a line), answers with JSON (its length before it) and the descriptors it names, in
that order, and leaves by `os._exit`: bcc's own clean-up would disable the events that the agent now holds.
It changes nothing on the host: tracefs and other kernels' headers are mounted in a mount namespace of its
own. Of an operator's text it reads headers alone (Landlock), whatever that text says. A request for layouts
is answered from tracefs alone, without bcc. Standard library only, besides bcc and `landlock`.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import platform
import resource
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

from hotstage.probes.loader.landlock import read_only_below

FDS_A_MESSAGE = 200
"""The kernel passes at most 253 descriptors in one message."""

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS, _MS_PRIVATE, _MS_REC = 0x20000, 1 << 18, 1 << 14
_TRACEFS = Path("/sys/kernel/tracing")
_DEBUG_TRACEFS = Path("/sys/kernel/debug/tracing")
_LAYOUT_BYTES = 1 << 16
_MODULES = Path("/lib/modules")


def main() -> None:
    """Serve the one request on the socket named in argv."""
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        answer: dict[str, Any]
        fds: list[int] = []
        try:
            die_with_the_agent()
            request = json.loads(channel.makefile("rb").readline())
            if "layouts" in request:
                answer = {"layouts": read_layouts(request["layouts"])}
            else:
                answer, fds = serve(request)
        except BaseException as error:  # the parent must hear of everything; nobody else is left to tell
            answer, fds = {"error": f"{type(error).__name__}: {error}"}, []
        body = json.dumps(answer).encode()
        channel.sendall(struct.pack("<I", len(body)) + body)
        for first in range(0, len(fds), FDS_A_MESSAGE):
            socket.send_fds(channel, [b"\0"], fds[first : first + FDS_A_MESSAGE])
        channel.recv(1)  # the parent has them: only now may the last reference here go
    sys.stderr.flush()
    os._exit(0)


def die_with_the_agent() -> None:
    """A compile without end outlives nobody; where memory is short it goes first. Whoever asked has a thread
    that waits for the answer. An agent that has ended before this is noticed by its closed socket.
    """
    _check(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), "a tie to the agent")
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def serve(request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Compile and load; → (answer, descriptors): programs, then maps, then attached tracepoints."""
    prepare_mounts(request.get("build"), request.get("source"))
    if request.get("memory_bytes"):
        resource.setrlimit(resource.RLIMIT_AS, (request["memory_bytes"], request["memory_bytes"]))
    bcc = _import_bcc(Path(request["package"]))
    if request.get("reads_headers_only"):
        read_only_below(_places(request.get("build"), request.get("source")))
    bpf = bcc.BPF(text=request["text"], cflags=request["cflags"])  # TRACEPOINT_PROBEs attach here
    if request.get("map_bytes"):
        check_maps(bcc.lib, bpf.module, request["map_bytes"])
    kinds = {"kprobe": bcc.BPF.KPROBE, "raw_tracepoint": bcc.BPF.RAW_TRACEPOINT}
    programs = {
        name: bpf.load_func(name, kinds[kind], None, attach_type).fd
        for name, kind, attach_type in request["functions"]
    }
    maps = {name: bcc.lib.bpf_table_fd(bpf.module, name.encode()) for name in request["maps"]}
    missing = [name for name, fd in maps.items() if fd < 0]
    if missing:
        raise LookupError(f"no such maps: {', '.join(missing)}")
    tracepoints = {_text(name): fd for name, fd in bpf.tracepoint_fds.items()}
    parts = {"programs": programs, "maps": maps, "tracepoints": tracepoints}
    answer = {kind: list(table) for kind, table in parts.items()}
    return answer, [fd for table in parts.values() for fd in table.values()]


def _places(build: str | None, source: str | None) -> list[Path]:
    """What a compile reads: headers, libraries, Python's modules, tracefs, itself. bcc unpacks the headers of
    a kernel that carries them below /tmp.
    """
    usual = ("/usr", "/lib", "/lib64", "/sys", "/proc/self", "/proc/kallsyms", "/proc/version_signature")
    headers = [build, source] if build and source else ["/tmp"]  # noqa: S108  # bcc's own choice
    own = [sys.prefix, sys.base_prefix, *filter(None, sys.path)]
    return [Path(place) for place in (*usual, *filter(None, headers), *own)]


def check_maps(lib: Any, module: int, limit: int) -> None:
    """Raises ValueError where all maps together take more of the kernel's memory than the limit."""
    lib.bpf_num_tables.argtypes, lib.bpf_num_tables.restype = [ctypes.c_void_p], ctypes.c_size_t
    lib.bpf_table_fd_id.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    fds = [lib.bpf_table_fd_id(module, index) for index in range(lib.bpf_num_tables(module))]
    taken = 0
    for fd in fds:
        told = Path(f"/proc/self/fdinfo/{fd}").read_text("ascii")
        taken += sum(int(line.split()[1]) for line in told.splitlines() if line.startswith("memlock:"))
    if taken > limit:
        raise ValueError(f"its maps take {taken} bytes of kernel memory, {limit} are allowed")


def read_layouts(events: list[str]) -> dict[str, str | None]:
    """`group:name` → the text of its `format` file, None where tracefs has no such event.

    Raises OSError where tracefs can be neither found nor mounted, or a layout not be read.
    """
    prepare_mounts(None, None)
    root = next(place for place in (_TRACEFS, _DEBUG_TRACEFS) if (place / "events").is_dir())
    return {event: _layout(root / "events" / event.replace(":", "/") / "format") for event in events}


def _layout(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            return opened.read(_LAYOUT_BYTES).decode("ascii", "replace")
    except FileNotFoundError:
        return None


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _import_bcc(package: Path) -> Any:
    """The package at `package`, whatever else on the path calls itself bcc; its neighbours come last."""
    sys.path.append(str(package.parent))
    spec = importlib.util.spec_from_file_location(
        "bcc", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"no bcc in {package}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["bcc"] = module
    spec.loader.exec_module(module)
    return module


def prepare_mounts(build: str | None, source: str | None) -> None:
    """What bcc expects at fixed places: tracefs, and headers below /lib/modules/<this kernel>."""
    needs_tracefs = not (_TRACEFS / "events").is_dir() and not (_DEBUG_TRACEFS / "events").is_dir()
    own = _MODULES / platform.release()
    needs_headers = build is not None and not (own / "build").exists()
    if not needs_tracefs and not needs_headers:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_CLONE_NEWNS), "a private mount namespace")
    _check(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "private mounts")
    if needs_tracefs:
        _check(libc.mount(b"tracefs", bytes(_TRACEFS), b"tracefs", 0, None), "tracefs")
    if needs_headers and build and source:
        _check(libc.mount(b"tmpfs", bytes(_MODULES), b"tmpfs", 0, None), "a place for headers")
        own.mkdir(parents=True)
        (own / "build").symlink_to(build)
        (own / "source").symlink_to(source)


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what} could not be made: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
