# SPDX-License-Identifier: Apache-2.0
"""What a process gives up before it loads a library that a stranger may have made: identity, capabilities,
files, core dumps, and every system call but those of loading and computing. Standard library only.

What is left can read libraries and answer on the pipes it has. It cannot write, connect, fork, execute or
signal. An agent without the right to change identity (its unit) leaves its own to the process: there Landlock
alone keeps the agent's files from it, and without Landlock nothing is loaded.
Numbers of system calls: asm/unistd_64.h and asm-generic/unistd.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from hotstage.privileges import give_up_capabilities
from hotstage.probes.loader.landlock import read_only_below

NOBODY = 65534
CPU_SECONDS = 2
ADDRESS_BYTES = 4 << 30
MEMORY_BYTES = 128 << 20
"""Private memory that it may write; shared memory, which this limit leaves out, is refused. Four trials run
beside each other in the agent's control group.
"""
DESCRIPTORS = 32

_LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib")
_LOADER_PLACES = (*_LIBRARIES, "/usr/local/lib64", "/usr/local/cuda", "/etc/ld.so.cache", "/proc/self/maps")
"""What a loader and a C library at its start look into. None of it is the agent's."""

_PR_SET_DUMPABLE, _PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NAME = 4, 1, 22, 15
_PR_CAPBSET_DROP = 24
_LAST_CAPABILITY = 63  # the kernel refuses those that it does not know
_SECCOMP_FILTER = 2
_SIGKILL = 9
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # SECCOMP_RET_*, linux/seccomp.h; refuse: EPERM
_LOAD, _EQUAL, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06  # BPF_LD+W+ABS, JMP+JEQ+K, ALU+AND+K, RET+K
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16  # struct seccomp_data
_MAP_SHARED = 1  # of MAP_SHARED and MAP_SHARED_VALIDATE alike, asm-generic/mman-common.h
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*, linux/audit.h

_LOOKED_AT: tuple[tuple[str, int, int, int, int], ...] = (
    ("openat", 257, 56, 2, _WRITING),
    ("mmap", 9, 222, 3, _MAP_SHARED),
)
"""Calls that pass without certain bits in an argument: x86-64, arm64, which argument, the bits."""
_CALLS: tuple[tuple[str, int, int | None], ...] = (
    ("read", 0, 63),
    ("write", 1, 64),
    ("close", 3, 57),
    ("fstat", 5, 80),
    ("lseek", 8, 62),
    ("mprotect", 10, 226),
    ("munmap", 11, 215),
    ("brk", 12, 214),
    ("rt_sigaction", 13, 134),
    ("rt_sigprocmask", 14, 135),
    ("rt_sigreturn", 15, 139),
    ("pread64", 17, 67),
    ("sched_yield", 24, 124),
    ("mremap", 25, 216),
    ("madvise", 28, 233),
    ("getpid", 39, 172),
    ("exit", 60, 93),
    ("uname", 63, 160),
    ("getcwd", 79, 17),
    ("readlink", 89, None),
    ("sysinfo", 99, 179),
    ("getuid", 102, 174),
    ("getgid", 104, 176),
    ("geteuid", 107, 175),
    ("getegid", 108, 177),
    ("sigaltstack", 131, 132),
    ("sched_get_priority_max", 146, 125),
    ("sched_get_priority_min", 147, 126),
    ("arch_prctl", 158, None),
    ("gettid", 186, 178),
    ("futex", 202, 98),
    ("sched_getaffinity", 204, 123),
    ("clock_gettime", 228, 113),
    ("exit_group", 231, 94),
    ("newfstatat", 262, 79),
    ("readlinkat", 267, 78),
    ("faccessat", 269, 48),
    ("set_robust_list", 273, 99),
    ("getrandom", 318, 278),
    ("statx", 332, 291),
    ("rseq", 334, 293),
    # The kernel's own ways into a probe: not every kernel lets them pass a filter by itself.
    ("uretprobe", 335, None),
    ("uprobe", 336, None),
)


class ExposedError(OSError):
    """The process would keep the agent's identity, and with it every file that the agent may read."""


def confine(name: str, readable: Iterable[Path] = ()) -> None:
    """Give everything up, for good, but reading of libraries and of `readable`.

    Raises OSError where the kernel refuses, ExposedError where too little is refused; then nothing may be
    loaded.
    """
    for limit, value in (
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_AS, ADDRESS_BYTES),
        (resource.RLIMIT_DATA, MEMORY_BYTES),
        (resource.RLIMIT_NOFILE, DESCRIPTORS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 1),  # 1, not 0: a core_pattern that is a program is not run for it either
    ):
        resource.setrlimit(limit, (value, value))
    with contextlib.suppress(OSError):  # the limits hold; this is for a control group that is full already
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    is_kept_from_files = _keep_from_files(readable)
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(_LAST_CAPABILITY + 1):  # where it may; without any permitted none comes back
        libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)
    is_nobody = _become_nobody()
    give_up_capabilities()
    if not (is_kept_from_files or is_nobody):
        raise ExposedError
    # A change of identity takes /proc/self/fd away, through which the library is opened.
    _prctl(libc, _PR_SET_DUMPABLE, 1)
    _prctl(libc, _PR_SET_PDEATHSIG, _SIGKILL)
    _prctl(libc, _PR_SET_NAME, ctypes.c_char_p(name.encode()))
    _refuse_calls(libc)


def _keep_from_files(readable: Iterable[Path]) -> bool:
    """False where Landlock is not there, or a container's own filter refuses it."""
    places = (*map(Path, _LOADER_PLACES), Path(sys.base_prefix, "lib"), *readable)
    try:
        return read_only_below(places, nothing_else=True)
    except OSError:
        return False


def _become_nobody() -> bool:
    """Whether it may: the agent of the unit and root in a container lack the right."""
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError:  # EINVAL: a user namespace that has no such user
        return False
    return True


def _refuse_calls(libc: ctypes.CDLL) -> None:
    program = seccomp_program(platform.machine())
    held = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("<H6xQ", len(program) // 8, ctypes.addressof(held)))
    _prctl(libc, _PR_SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(header))


def seccomp_program(machine: str) -> bytes:
    """A classic BPF program of struct sock_filter: the calls above pass, others get EPERM.

    Raises OSError for a machine whose numbers are not known.
    """
    if machine not in _ARCHITECTURES:
        raise OSError(f"no table of system calls for {machine}")
    is_x86 = machine == "x86_64"
    numbers = [number for _, x86, arm in _CALLS if (number := x86 if is_x86 else arm) is not None]
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    for left, (_, x86, arm, argument, bits) in enumerate(reversed(_LOOKED_AT)):
        lines[4:4] = [
            (_EQUAL, 0, 4, x86 if is_x86 else arm),
            (_LOAD, 0, 0, _ARGUMENTS_AT + argument * 8),
            (_AND, 0, 0, bits),
            (_EQUAL, 1 + left * 5 + len(numbers) + 1, 0, 0),
            (_RETURN, 0, 0, _REFUSE),
        ]
    lines += [(_EQUAL, len(numbers) - index, 0, number) for index, number in enumerate(numbers)]
    lines += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def _prctl(libc: ctypes.CDLL, what: int, *values: object) -> None:
    padded = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in values]
    padded += [ctypes.c_ulong(0)] * (4 - len(padded))
    if libc.prctl(what, *padded) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {what}: {os.strerror(code)}")
