# SPDX-License-Identifier: Apache-2.0
"""Real targets for the probes: a library named libcuda.so.1 made by gcc, and processes that call it.

The library's functions begin like libcuda's (compare, jump) or with a push; nobody but these tests uses it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hotstage.probes.coverage import LibraryCoverage
from hotstage.probes.engine import ProbeEngine

LIBRARY_SOURCE = r"""
        .text
        .macro  function name
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
        cmpl    $0x321cba00, flag(%rip)
        je      1f
1:      push    %rbp
        mov     %rsp, %rbp
        xor     %eax, %eax
        pop     %rbp
        ret
        .size   \name, . - \name
        .endm
        function cuLaunchKernel
        function cuMemAlloc_v2
        function cuStreamSynchronize

        .globl  cuEventSynchronize
        .type   cuEventSynchronize, @function
        .p2align 4
cuEventSynchronize:
        push    %rbp
        mov     %rsp, %rbp
        call    pause@plt
        pop     %rbp
        ret
        .size   cuEventSynchronize, . - cuEventSynchronize
        .data
flag:   .long   1
        .section .note.GNU-stack,"",@progbits
"""

DRIVER = r"""
import ctypes, json, os, subprocess, sys, threading
library = None
def run(command):
    global library
    verb, *rest = command
    if verb == "open":
        library = ctypes.CDLL(rest[0])
    elif verb == "memory":
        fd = os.memfd_create("libcuda.so.1")
        os.write(fd, open(rest[0], "rb").read())
        library = ctypes.CDLL(f"/proc/self/fd/{fd}")
    elif verb == "call":
        name, times = rest
        function = getattr(library, name)
        for _ in range(times):
            function(None, 4096, None)
    elif verb == "thread":
        threading.Thread(target=library.cuEventSynchronize, args=(None,), daemon=True).start()
    elif verb == "run":
        subprocess.run(rest[0], check=True)
    elif verb == "exec":
        os.execv(sys.executable, sys.orig_argv)
    elif verb == "fork":
        pid = os.fork()
        if pid == 0:
            getattr(library, "cuLaunchKernel")(None)
            os._exit(0)
        os.waitpid(pid, 0)
        return pid
    return os.getpid()
for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), flush=True)
"""


def build_library(folder: Path, *, name: str = "libcuda.so.1", salt: str = "") -> Path:
    """A library of that name; `salt` gives it another build-id."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "library.S"
    source.write_text(LIBRARY_SOURCE + (f'\n.section .rodata\n.ascii "{salt}"\n' if salt else ""))
    built = folder / name
    command = ["gcc", "-shared", "-Wl,--build-id", f"-Wl,-soname,{name}", "-o", str(built), str(source)]
    subprocess.run(command, check=True, timeout=60)
    return built


class Target:
    """A process that opens the library and calls it when told to."""

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        """`prefix` is a command that replaces itself by the target, such as `unshare -m --`."""
        command = [*prefix, sys.executable, "-S", "-c", DRIVER]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def tell(self, *command: Any) -> Any:
        """Run one command there and wait for it, at most 20 s."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        readable, _, _ = select.select([self.process.stdout], [], [], 20)
        assert readable, f"the target answered {command} within 20 s"
        return json.loads(self.process.stdout.readline())

    def open(self, library: Path) -> None:
        self.tell("open", str(library))

    def exec(self, library: Path) -> None:
        """Replace it by itself, without the library that it has open; returns when that is done."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(["exec"]) + "\n")
        self.process.stdin.flush()
        maps = Path(f"/proc/{self.pid}/maps")
        wait_until(lambda: library.name not in maps.read_text(), "the target has executed itself")

    def call(self, name: str, times: int) -> None:
        self.tell("call", name, times)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


def libraries_of(engine: ProbeEngine, pid: int) -> list[LibraryCoverage]:
    """Of a process, whatever they are. Ask for the kind that is meant: until it executes its program a child
    shows its parent's, and this process may have the marks.
    """
    return [lib for process in engine.coverage().processes if process.pid == pid for lib in process.libraries]


def covered_kinds(engine: ProbeEngine, pid: int) -> set[str]:
    """Kinds of libraries that are counted of a process now."""
    return {library.kind for library in libraries_of(engine, pid) if library.since_ns is not None}


def driver_of(engine: ProbeEngine, pid: int) -> LibraryCoverage | None:
    """Its first libcuda, None while it has none."""
    return next((library for library in libraries_of(engine, pid) if library.kind == "libcuda"), None)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 5.0) -> float:
    """Seconds until `condition` held; fails with `what` after `seconds`."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"{what} within {seconds:g} s"
        time.sleep(0.005)
    return time.monotonic() - began


def first_bytes(pid: int, library: Path, symbol_offset: int) -> bytes:
    """The five bytes that the process sees at a file offset of the library."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split()
        if len(fields) > 5 and "x" in fields[1] and Path(fields[5]).name == library.name:
            start = int(fields[0].split("-")[0], 16)
            fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
            try:
                return os.pread(fd, 5, start + symbol_offset - int(fields[2], 16))
            finally:
                os.close(fd)
    raise AssertionError(f"process {pid} has mapped {library}")


def other_probers() -> set[int]:
    """Processes beside this one that hold BPF links: another agent would attach to the same library."""
    found: set[int] = set()
    for link in (*Path("/proc").glob("[0-9]*/fd/*"), *Path("/proc").glob("[0-9]*/task/*/fd/*")):
        try:
            if link.readlink().name in ("anon_inode:bpf_link", "anon_inode:bpf-link"):
                found.add(int(link.parts[2]))
        except OSError:
            continue
    return found - {os.getpid()}
