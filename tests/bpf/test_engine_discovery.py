# SPDX-License-Identifier: Apache-2.0
"""Wherever a library lies it is counted; whatever a file under its name is, it is refused with a reason."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.driver_library import build_driver, copy_of

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.coverage import LibraryCoverage
from hotstage.probes.engine import ProbeEngine

sys.path.insert(0, str(Path(__file__).parent))
from callers import Caller, build_caller
from targets import Target, build_library, covered_kinds, wait_until

pytestmark = pytest.mark.kernel

CHROOT = (
    'mount --rbind / "$1" && mount -t tmpfs none "$1/mnt" && cp "$2" "$1/mnt/libcuda.so.1" && root=$1'
    ' && shift 2 && exec chroot "$root" "$@"'
)
STATIC_RUNTIME = r"""
#include <dlfcn.h>
#include <stdio.h>
static int (*launch)(void *);
int cudaLaunchKernel(void *function) { return launch(function); } /* linked in: no library has it */
int main(int argc, char **argv)
{
        char line[8];

        launch = (int (*)(void *))dlsym(dlopen(argv[4], RTLD_NOW), "cuLaunchKernel");
        puts("ready");
        fflush(stdout);
        while (fgets(line, sizeof(line), stdin)) {
                for (int i = 0; i < 211; i++)
                        cudaLaunchKernel(0);
                puts("done");
                fflush(stdout);
        }
        return 0;
}
"""
MAPPER = """
import mmap, os, sys, time
held = []
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDONLY)
    size = min(os.fstat(fd).st_size, 4096)
    held.append(mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC))
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def engine() -> Iterator[ProbeEngine]:
    engine = ProbeEngine(ProbesConfig(xid=False, driver=False), SystemClock())
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_caller(tmp_path_factory.mktemp("caller"))


def libraries_of(engine: ProbeEngine, pid: int) -> dict[str, LibraryCoverage]:
    """By the name of their file."""
    return {
        Path(library.path).parent.name + "/" + Path(library.path).name: library
        for process in engine.coverage().processes
        if process.pid == pid
        for library in process.libraries
    }


def is_attached(engine: ProbeEngine, pid: int) -> bool:
    return "libcuda" in covered_kinds(engine, pid)


def counted(engine: ProbeEngine, pid: int) -> int:
    calls = engine.totals().by_pid.get(pid, {})
    return calls["cuLaunchKernel"].counted if "cuLaunchKernel" in calls else 0


def expect_counted(engine: ProbeEngine, target: Target, times: int) -> None:
    wait_until(lambda: is_attached(engine, target.pid), "the library is attached", 1.0)
    target.call("cuLaunchKernel", times)
    assert counted(engine, target.pid) == times


def test_a_copy_in_a_chroot_is_another_file_and_is_attached_there(
    engine: ProbeEngine, start_target: Callable[..., Target], tmp_path: Path
) -> None:
    library, root = build_library(tmp_path / "host"), tmp_path / "root"
    root.mkdir()
    host = start_target()
    host.open(library)
    engine.start()
    inside = start_target("unshare", "-m", "sh", "-c", CHROOT, "sh", str(root), str(library))
    inside.open(Path("/mnt/libcuda.so.1"))
    expect_counted(engine, inside, 101)
    expect_counted(engine, host, 103)


def test_a_wheel_in_a_virtual_environment_is_found_where_it_lies(
    engine: ProbeEngine, tmp_path: Path, program: Path
) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    (site,) = (tmp_path / "venv/lib").glob("python3*/site-packages")
    driver = build_library(site / "nvidia/cuda_driver/lib")
    runtime = build_library(site / "nvidia/cuda_runtime/lib", name="libcudart.so.12")
    engine.start()
    code = (
        "import ctypes, nvidia, sys; from pathlib import Path; root = Path(list(nvidia.__path__)[0])\n"
        "ctypes.CDLL(root / 'cuda_runtime/lib/libcudart.so.12')\n"
        "driver = ctypes.CDLL(root / 'cuda_driver/lib/libcuda.so.1')\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for _ in range(107): driver.cuLaunchKernel(None)\n"
        "print('done', flush=True); sys.stdin.readline()"
    )
    command = [tmp_path / "venv/bin/python", "-c", code]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert server.stdin and server.stdout
    try:
        assert server.stdout.readline() == b"ready\n"
        wait_until(lambda: len(libraries_of(engine, server.pid)) == 2, "both libraries are known", 1.0)
        paths = {library.path for library in libraries_of(engine, server.pid).values()}
        assert paths == {str(driver), str(runtime)}
        server.stdin.write(b"\n")
        assert server.stdout.readline() == b"done\n"
        assert counted(engine, server.pid) == 107
    finally:
        server.kill()
        server.communicate(timeout=10)


def test_a_program_with_the_runtime_linked_in_is_covered_through_the_driver(
    engine: ProbeEngine, tmp_path: Path
) -> None:
    source, server = tmp_path / "server.c", tmp_path / "server"
    source.write_text(STATIC_RUNTIME)
    subprocess.run(["gcc", "-O1", "-w", "-o", server, source, "-ldl"], check=True, timeout=60)
    library = build_library(tmp_path / "driver")
    engine.start()
    process = Caller(server, "unused", 0, library)
    try:
        wait_until(lambda: is_attached(engine, process.pid), "the driver is attached", 1.0)
        process.call()
        assert counted(engine, process.pid) == 211
        assert [library.kind for library in libraries_of(engine, process.pid).values()] == ["libcuda"]
    finally:
        process.end()


def test_an_exec_ends_the_epoch_and_the_next_program_is_found_again(
    engine: ProbeEngine, start_target: Callable[..., Target], tmp_path: Path
) -> None:
    library, target = build_library(tmp_path), start_target()
    target.open(library)
    engine.start()
    expect_counted(engine, target, 11)
    target.exec(library)
    wait_until(lambda: not libraries_of(engine, target.pid), "the exec is noticed")
    assert [epoch.pid for epoch in engine.coverage().epochs] == [target.pid]
    target.open(library)
    wait_until(lambda: is_attached(engine, target.pid), "the library is attached again", 1.0)
    target.call("cuLaunchKernel", 13)
    assert counted(engine, target.pid) == 24


def test_a_library_that_has_only_memory_behind_it_is_attached(
    engine: ProbeEngine, start_target: Callable[..., Target], tmp_path: Path
) -> None:
    library, target = build_library(tmp_path), start_target()
    engine.start()
    target.tell("memory", str(library))
    expect_counted(engine, target, 109)


@pytest.mark.parametrize("what", ["fifo", "socket", "directory", "symlink", "device"])
def test_what_takes_a_librarys_name_while_it_is_mapped_is_never_opened(
    engine: ProbeEngine, start_target: Callable[..., Target], tmp_path: Path, what: str
) -> None:
    library, target = build_library(tmp_path), start_target()
    target.open(library)
    library.unlink()
    if what == "fifo":
        os.mkfifo(library)
    elif what == "socket":
        os.mknod(library, stat.S_IFSOCK | 0o666)
    elif what == "directory":
        library.mkdir()
    elif what == "symlink":
        library.symlink_to("/dev/zero")
    else:
        os.mknod(library, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    engine.start()
    assert engine.start_seconds is not None and engine.start_seconds <= 3.0
    expect_counted(engine, target, 113)


def forgeries(good: Path, folder: Path) -> list[Path]:
    """Files under the library's name that a hostile process may map; each in a folder named by its trick."""
    data = good.read_bytes()

    def patched(at: int, value: bytes) -> bytes:
        return data[:at] + value + data[at + len(value) :]

    first, last = data.index(b"cuLaunchKernel"), data.rindex(b"libcuda.so.1\0")
    contents = {
        "text": b"#!/bin/sh\n" * 10,
        "header-only": data[:64],
        "no-headers": patched(56, b"\0\0"),
        "endless-headers": patched(56, b"\xff\xff"),
        "headers-far-away": patched(32, b"\xff" * 8),
        "cut": data[: len(data) // 2],
        "32-bit": patched(4, b"\1"),
        "zeros-behind": data[:64] + bytes(8192),
        "noise": data[:64] + os.urandom(8192),
        "no-name-ends": data[:first] + data[first:last].replace(b"\0", b"X") + data[last:],
    }
    made = []
    for name, content in contents.items():
        made.append(folder / name / "libcuda.so.1")
        made[-1].parent.mkdir(parents=True)
        made[-1].write_bytes(content)
    huge = folder / "sparse" / "libcuda.so.1"
    huge.parent.mkdir()
    with huge.open("wb") as file:
        file.write(data)
        file.truncate(5 << 30)
    return [*made, huge]


def test_forged_libraries_are_refused_one_by_one_and_the_good_one_beside_them_is_counted(
    engine: ProbeEngine, start_target: Callable[..., Target], tmp_path: Path
) -> None:
    good = build_library(tmp_path / "good")
    forged = forgeries(good, tmp_path / "forged")
    mapper = subprocess.Popen([sys.executable, "-c", MAPPER, *map(str, forged)], stdout=subprocess.PIPE)
    target = start_target()
    target.open(good)
    try:
        assert mapper.stdout and mapper.stdout.readline() == b"ready\n"
        engine.start()
        assert engine.start_seconds is not None and engine.start_seconds <= 3.0
        found = libraries_of(engine, mapper.pid)
        assert len(found) == len(forged)
        for name, library in found.items():
            assert library.since_ns is None and library.reason, name
            print(f"{name}: {library.state}, {library.reason}")
        expect_counted(engine, target, 127)
    finally:
        mapper.kill()
        mapper.communicate(timeout=10)


def test_a_path_without_end_is_cut_for_people_and_its_library_counted(
    engine: ProbeEngine, start_target: Callable[..., Target], tmp_path: Path
) -> None:
    library, deep = build_library(tmp_path / "flat"), tmp_path
    while len(os.fspath(deep)) < 3700:
        deep = deep / ("\x1b[31m" + "n" * 240)
    deep.mkdir(parents=True)
    shutil.copy(library, deep / "libcuda.so.1")
    target = start_target()
    target.open(deep / "libcuda.so.1")
    engine.start()
    expect_counted(engine, target, 131)
    (shown,) = [library.path for library in libraries_of(engine, target.pid).values()]
    assert len(shown) <= 256 and shown.isprintable()


def test_a_file_that_is_swapped_while_it_is_being_attached_is_the_one_that_was_mapped(
    engine: ProbeEngine, tmp_path: Path, program: Path
) -> None:
    built = build_driver(tmp_path / "built")
    builds = [copy_of(built, tmp_path / str(number), number) for number in range(4)]
    place, is_over = tmp_path / "place/libcuda.so.1", threading.Event()
    place.parent.mkdir()
    shutil.copy(builds[0], place)

    def swap() -> None:
        number = 0
        while not is_over.wait(0.002):
            number += 1
            shutil.copy(builds[number % len(builds)], place.with_name("next"))
            place.with_name("next").rename(place)

    swapping = threading.Thread(target=swap)
    swapping.start()
    callers: list[Caller] = []
    try:
        engine.start()
        for _ in range(12):
            callers.append(Caller(program, "cuLaunchKernel", 17, place))
        for caller in callers:
            wait_until(lambda c=caller: is_attached(engine, c.pid), "what it has mapped is attached", 5.0)
            caller.call()
        assert [counted(engine, caller.pid) for caller in callers] == [17] * len(callers)
    finally:
        is_over.set()
        swapping.join()
        for caller in callers:
            caller.end()
