# SPDX-License-Identifier: Apache-2.0
"""What a confined process can no longer do, and that it can still load a library."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys

import pytest

from hotstage.probes.loader.landlock import is_here as is_landlock_here
from hotstage.probes.trial.confinement import seccomp_program

ATTEMPTS = r"""
import ctypes, errno, mmap, os, socket, sys
from hotstage.probes.trial.confinement import confine
status = open("/proc/self/status")
parent = f"/proc/{os.getppid()}/environ"
own = open("/proc/self/oom_score_adj")
confine("confined")
def attempt(work):
    try:
        work()
    except MemoryError:
        return "ENOMEM"
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
for name, work in {
    "write": lambda: os.open("/tmp/confined", os.O_WRONLY | os.O_CREAT),
    "update": lambda: os.open("/etc/passwd", os.O_RDWR),
    "read": lambda: os.close(os.open("/etc/passwd", os.O_RDONLY)),
    "list": lambda: os.close(os.open("/tmp", os.O_RDONLY)),
    "parent": lambda: os.close(os.open(parent, os.O_RDONLY)),
    "cache": lambda: os.close(os.open("/etc/ld.so.cache", os.O_RDONLY)),
    "connect": lambda: socket.socket(socket.AF_INET),
    "local": lambda: socket.socket(socket.AF_UNIX),
    "fork": os.fork,
    "execute": lambda: os.execv("/bin/true", ["true"]),
    "signal": lambda: os.kill(os.getppid(), 0),
    "trace": lambda: call("ptrace", 0, 0, 0, 0),
    "device": lambda: call("ioctl", 0, 0x5401, 0),
    "unlink": lambda: os.unlink("/tmp/confined"),
    "mount": lambda: call("mount", 0, 0, 0, 0, 0),
    "share": lambda: mmap.mmap(-1, 4096, mmap.MAP_SHARED),
    "fill": lambda: bytearray(256 << 20),
    "load": lambda: ctypes.CDLL("libm.so.6"),
}.items():
    print(name, attempt(work), flush=True)
print(status.read())
print("first to be killed", own.read())
"""


@pytest.fixture(scope="module")
def report() -> str:
    done = subprocess.run(
        [sys.executable, "-c", ATTEMPTS], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout


@pytest.mark.parametrize("name", ["cache", "load"])
def test_it_can_load_a_library(report: str, name: str) -> None:
    assert f"{name} done" in report


@pytest.mark.skipif(not is_landlock_here(), reason="this kernel has no Landlock")
@pytest.mark.parametrize("name", ["read", "list", "parent"])
def test_it_reads_nothing_but_libraries(report: str, name: str) -> None:
    assert f"{name} EACCES" in report


@pytest.mark.parametrize(
    "name",
    [
        "write",
        "update",
        "connect",
        "local",
        "fork",
        "execute",
        "signal",
        "trace",
        "device",
        "unlink",
        "mount",
        "share",
    ],
)
def test_it_can_do_nothing_to_others(report: str, name: str) -> None:
    assert f"{name} EPERM" in report


def test_the_memory_that_it_fills_is_bounded_and_it_is_the_first_to_be_killed_for_it(report: str) -> None:
    assert "fill ENOMEM" in report
    assert "first to be killed 1000" in report


def test_it_is_nobody_without_a_capability(report: str) -> None:
    held = {name: int(value, 16) for name, value in re.findall(r"(Cap(?:Inh|Prm|Eff|Amb)):\s*(\w+)", report)}
    assert held == dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapAmb"), 0)
    if os.geteuid() == 0:
        assert re.search(r"CapBnd:\s*0+\n", report)
    assert re.search(r"Name:\s*confined", report)
    assert re.search(r"Seccomp:\s*2", report)
    assert not re.search(r"Uid:\s*0\b", report)


def test_a_machine_whose_calls_are_not_known_is_refused() -> None:
    assert len(seccomp_program(platform.machine())) % 8 == 0
    with pytest.raises(OSError, match="riscv64"):
        seccomp_program("riscv64")
