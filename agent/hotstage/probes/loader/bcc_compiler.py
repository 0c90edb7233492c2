# SPDX-License-Identifier: Apache-2.0
"""Compiles with bcc in a child of its own and takes over the descriptors. Attaches nothing itself, keeps no
bcc.

bcc brings LLVM: 130 MiB and half a second, in a process that is gone again before anything is counted.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from hotstage.errors import LoadError, PreflightError, PrivilegeError
from hotstage.probes.loader.bcc_child import FDS_A_MESSAGE
from hotstage.probes.loader.bindings import (
    INSTALL_BCC,
    INSTALL_HEADERS,
    INSTALL_LIBRARIES,
    BccBindings,
    find_bcc,
    find_headers,
)

DEADLINE_SECONDS = 60.0
"""A compile of the engine's programs took 8 to 16 s on two cores that had other work besides."""

_ANSWER_BYTES_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class CompileLimits:
    """What one compile may take. `memory_bytes` bounds the child's address space (None: as the agent's);
    `said_bytes` is how much of what the compiler said an error carries; `map_bytes` bounds what all maps
    together take of the kernel's memory (None: no bound). `reads_headers_only`: no other file of the host is
    opened while the text is compiled, where the kernel has Landlock.
    """

    deadline_seconds: float = DEADLINE_SECONDS
    memory_bytes: int | None = None
    said_bytes: int = 4_000
    map_bytes: int | None = None
    reads_headers_only: bool = False


ORDINARY_LIMITS = CompileLimits()


@dataclass(frozen=True, slots=True)
class Function:
    """A program to load: `kind` is `kprobe` (uprobes too) or `raw_tracepoint`; 48 loads it for
    `uprobe.multi`.
    """

    name: str
    kind: str = "kprobe"
    expected_attach_type: int = -1


@dataclass(frozen=True, slots=True)
class Compiled:
    """Descriptors of what bcc loaded, by name; `tracepoints` are attached while theirs are open."""

    programs: Mapping[str, int]
    maps: Mapping[str, int]
    tracepoints: Mapping[str, int]
    seconds: float

    def close(self) -> None:
        for table in (self.tracepoints, self.programs, self.maps):
            for fd in table.values():
                os.close(fd)


def compile_with_bcc(
    text: str,
    functions: Sequence[Function],
    maps: Sequence[str],
    *,
    bindings: BccBindings | None = None,
    defines: Sequence[str] = (),
    limits: CompileLimits = ORDINARY_LIMITS,
) -> Compiled:
    """Compile `text`, load `functions` (and attach its TRACEPOINT_PROBEs) and return the descriptors.

    `defines` are macros to set, as `NAME` or `NAME=VALUE`. Raises PreflightError without bcc or headers,
    PrivilegeError, or LoadError with the end of what bcc said.
    """
    began = time.monotonic()
    request = _request(text, functions, maps, bindings or find_bcc())
    request["cflags"] += [f"-D{define}" for define in defines]
    request["memory_bytes"], request["map_bytes"] = limits.memory_bytes, limits.map_bytes
    request["reads_headers_only"] = limits.reads_headers_only
    answer, fds = _ask(request, limits)
    tables = {
        kind: {name: fds.pop(0) for name in answer[kind]} for kind in ("programs", "maps", "tracepoints")
    }
    return Compiled(tables["programs"], tables["maps"], tables["tracepoints"], time.monotonic() - began)


def read_layouts(events: Sequence[str]) -> dict[str, str | None]:
    """`group:name` → the text of tracefs's `format` file, None where there is no such event.

    Read in the same kind of child, because bcc's view counts: where nobody has mounted tracefs, it is mounted
    for that child alone. Raises PrivilegeError or LoadError where tracefs cannot be read.
    """
    answer, _ = _ask({"layouts": list(events)}, ORDINARY_LIMITS)
    layouts: dict[str, str | None] = answer["layouts"]
    return layouts


def _ask(request: dict[str, Any], limits: CompileLimits) -> tuple[dict[str, Any], list[int]]:
    """The child's answer and its descriptors."""
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryFile() as said:
        with theirs:
            child = _start(theirs, said)
        try:
            ours.settimeout(limits.deadline_seconds)
            _send(ours, request)
            answer = _receive_answer(ours)
            named = [names for names in answer.values() if isinstance(names, list)]
            fds = _receive_fds(ours, sum(map(len, named)))
            ours.sendall(b"\0")
        except (OSError, ValueError, KeyError) as error:
            raise _failure(error, said, limits) from error
        finally:
            _end(child, limits.deadline_seconds)
    return answer, fds


def _request(
    text: str, functions: Sequence[Function], maps: Sequence[str], bindings: BccBindings
) -> dict[str, Any]:
    if bindings.package is None:
        found = ", ".join(map(str, bindings.impostors))
        also = f" ({found} is another project of that name)" if found else ""
        raise PreflightError(f"bcc is not installed{also}", remedy=INSTALL_BCC)
    headers = find_headers()
    if headers is None:
        raise PreflightError("bcc needs kernel headers and finds none", remedy=INSTALL_HEADERS)
    return {
        "package": str(bindings.package),
        "build": str(headers.build) if headers.build else None,
        "source": str(headers.source) if headers.source else None,
        "text": text,
        "cflags": ["-DHOTSTAGE_BCC", "-Wno-everything"],
        "functions": [(f.name, f.kind, f.expected_attach_type) for f in functions],
        "maps": list(maps),
    }


def _start(theirs: socket.socket, said: IO[bytes]) -> subprocess.Popen[bytes]:
    fd = theirs.fileno()
    return subprocess.Popen(
        [sys.executable, "-m", "hotstage.probes.loader.bcc_child", str(fd)],
        pass_fds=[fd],
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
    )


def _send(channel: socket.socket, request: dict[str, Any]) -> None:
    channel.sendall(json.dumps(request).encode() + b"\n")


def _receive_answer(channel: socket.socket) -> dict[str, Any]:
    length = struct.unpack("<I", _exactly(channel, 4))[0]
    if length > _ANSWER_BYTES_LIMIT:
        raise ValueError(f"an answer of {length} bytes")
    answer: dict[str, Any] = json.loads(_exactly(channel, length))
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer


def _exactly(channel: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = channel.recv(length - len(data))
        if not part:
            raise ValueError("the compiler ended without an answer")
        data += part
    return data


def _receive_fds(channel: socket.socket, count: int) -> list[int]:
    """`count` descriptors, none of them for children (`socket.recv_fds` drops that flag in Python 3.11)."""
    fds = array("i")
    room = socket.CMSG_LEN(FDS_A_MESSAGE * fds.itemsize)
    while len(fds) < count:
        data, ancillary, _, _ = channel.recvmsg(1, room, socket.MSG_CMSG_CLOEXEC)
        if not data:
            break
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    if len(fds) != count:
        for fd in fds:
            os.close(fd)
        raise ValueError(f"{len(fds)} of {count} descriptors arrived")
    return fds.tolist()


def _failure(error: Exception, said: IO[bytes], limits: CompileLimits) -> PreflightError | PrivilegeError:
    if isinstance(error, TimeoutError):
        return LoadError(f"bcc gave no answer within {limits.deadline_seconds:g} s", remedy="--loader libbpf")
    said.seek(0)
    tail = said.read()[-limits.said_bytes :].decode("utf-8", "replace").strip()
    message = f"bcc refused the programs: {error}" + (f"\n{tail}" if tail else "")
    if "Operation not permitted" in message or "Permission denied" in message:
        return PrivilegeError(message, remedy="run as root: bcc needs CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN")
    if "kernel headers" in message:
        remedy = INSTALL_HEADERS
    elif "OSError" in message and ".so" in message:
        remedy = INSTALL_LIBRARIES
    else:
        remedy = "--loader libbpf"
    return LoadError(message, remedy=remedy)


def _end(child: subprocess.Popen[bytes], deadline_seconds: float) -> None:
    """The child leaves by itself once the socket is answered or closed; one that does not is killed."""
    try:
        child.wait(0.5 if child.poll() is None else 0)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGKILL)
        child.wait(deadline_seconds)
