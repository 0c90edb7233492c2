# SPDX-License-Identifier: Apache-2.0
"""Programs of an operator, really compiled and attached: the shipped examples, what a bad one does, and that
bcc and CO-RE count the same.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hotstage.clock import SystemClock
from hotstage.errors import LoadError
from hotstage.probes import bpf
from hotstage.probes.custom import program
from hotstage.probes.custom.convention import parse
from hotstage.probes.custom.files import CustomFile
from hotstage.probes.custom.program import load
from hotstage.probes.custom.watch import CustomProbes, CustomReport
from hotstage.probes.driver.watch import DriverWatch
from hotstage.probes.loader.bcc_compiler import CompileLimits
from hotstage.probes.loader.landlock import is_here as is_landlock_here
from hotstage.probes.loader.raw_tracepoint import load_raw_tracepoint

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "deploy/probes.d"
HEAD = "// hotstage-probe: 1\n// hotstage-metric: seen_total from seen by pid:u32: Seen\n"
COUNTER = HEAD + (
    "BPF_HASH(seen, u32, u64, 64);\n"
    "TRACEPOINT_PROBE(sched, sched_process_exec)\n{\n"
    "\tu32 pid = bpf_get_current_pid_tgid() >> 32;\n\tseen.increment(pid);\n\treturn 0;\n}\n"
)
LOAD_SECONDS = 60.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[[], CustomProbes]]:
    started: list[CustomProbes] = []

    def begin() -> CustomProbes:
        started.append(CustomProbes(folder, SystemClock()))
        started[-1].start()
        assert started[-1].wait(LOAD_SECONDS), "the programs were not loaded in time"
        return started[-1]

    yield begin
    for probes in started:
        probes.close()


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("twins") / "twins.bpf.o"
    machine = platform.machine()
    arch = "arm64" if machine == "aarch64" else "x86"
    source = Path(__file__).parent / "target/tracepoint_twins.bpf.c"
    include = [f"-I{REPOSITORY / 'bpf'}", f"-I/usr/include/{machine}-linux-gnu"]
    flags = ["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", f"-D__TARGET_ARCH_{arch}"]
    subprocess.run(["clang", *flags, *include, "-c", source, "-o", out], check=True)
    return out


def reports(probes: CustomProbes) -> dict[str, CustomReport]:
    return {each.name: each for each in probes.report()}


def value(probes: CustomProbes, metric: str, *labels: str) -> float:
    found = {each.metric.name: dict(each.children) for each in probes.read()}
    return found[f"hotstage_custom_{metric}"].get(labels, 0.0)


def run_as(name: str, folder: Path, times: int) -> None:
    """A program of that name, started and ended so many times."""
    program = folder / name
    shutil.copy("/bin/true", program)
    for _ in range(times):
        subprocess.run([program], check=True)


def test_the_shipped_examples_load_and_count(folder: Path, start, tmp_path: Path) -> None:
    for example in EXAMPLES.glob("*.bpf.c"):
        text = example.read_text()
        (folder / example.name).write_text(text.replace("/x86_64-", f"/{platform.machine()}-"))
    probes = start()
    assert {name: each.reason for name, each in reports(probes).items()} == {
        "lookups": None,
        "programs": None,
    }
    run_as("hotstage-comes", tmp_path, 11)
    assert value(probes, "programs_started_total", "hotstage-comes") == 11
    assert value(probes, "programs_ended_total", "hotstage-comes") == 11
    me = Path("/proc/self/comm").read_text().strip()
    before = value(probes, "lookups_lookups_total", me), value(probes, "lookups_lookup_seconds_total", me)
    for _ in range(3):
        socket.getaddrinfo("127.0.0.1", 80)
    assert value(probes, "lookups_lookups_total", me) == before[0] + 3
    assert 0 < value(probes, "lookups_lookup_seconds_total", me) - before[1] < 1


def test_bcc_and_core_count_the_same_starts_and_ends(
    folder: Path, start, twins: Path, tmp_path: Path
) -> None:
    shutil.copy(EXAMPLES / "programs.bpf.c", folder)
    probes = start()
    with ExitStack() as stack:
        maps = {}
        for twin, event, name in (
            ("exec_twin", "sched_process_exec", "started"),
            ("exit_twin", "sched_process_exit", "ended"),
        ):
            fds, found = load_raw_tracepoint(twins, twin, event, [name])
            for fd in fds:
                stack.callback(os.close, fd)
            maps[name] = found[name]
        run_as("hotstage-twin", tmp_path, 101)
        for name in ("started", "ended"):
            raw = bpf.lookup(maps[name], b"hotstage-twin".ljust(16, b"\0"), 8)
            assert raw is not None
            assert int.from_bytes(raw, "little") == 101
            assert value(probes, f"programs_{name}_total", "hotstage-twin") == 101


def test_bcc_and_core_count_the_same_ioctls_and_kills(twins: Path) -> None:
    watch = DriverWatch(SystemClock(), lambda: [os.getpid()], ioctls=True, patterns=(("pty", "/dev/pts/*"),))
    watch.start()
    with ExitStack() as stack:
        stack.callback(watch.close)
        assert watch.wait(LOAD_SECONDS) == "watching"
        maps: dict[str, int] = {}
        for twin, event, name in (
            ("ioctl_twin", "sys_enter", "ioctls"),
            ("victim_twin", "mark_victim", "killed"),
        ):
            fds, found = load_raw_tracepoint(twins, twin, event, [name])
            maps |= found
            for fd in fds:
                stack.callback(os.close, fd)
        master, slave = os.openpty()
        stack.callback(os.close, master)
        stack.callback(os.close, slave)
        watch.keep_house()
        key = struct.pack("<Q", os.getpid() << 32 | slave)
        before = int.from_bytes(bpf.lookup(maps["ioctls"], key, 8) or b"", "little")  # openpty's own
        for _ in range(503):
            fcntl.ioctl(slave, 0x5413, bytes(8))
        raw = bpf.lookup(maps["ioctls"], key, 8)
        assert raw is not None
        (pty,) = (each for each in watch.report(None).ioctls or () if each.device == "pty")
        assert pty.count == int.from_bytes(raw, "little") - before == 503

        hits = {event.event: event.hits for event in watch.report(None).events}
        kill_one()
        after = {event.event: event.hits for event in watch.report(None).events}
        raw = bpf.lookup(maps["killed"], bytes(4), 8)
        assert raw is not None
        assert (
            (after["oom:mark_victim"] or 0) - (hits["oom:mark_victim"] or 0)
            == int.from_bytes(raw, "little")
            >= 1
        )


def kill_one() -> None:
    """One process that the kernel kills for memory."""
    group = Path(f"/sys/fs/cgroup/memory/hotstage-twin-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(24 << 20))
    except OSError as error:
        pytest.skip(f"no memory cgroup may be made here: {error}")
    hog = "import os,sys; open(sys.argv[1],'w').write(str(os.getpid())); bytearray(200 << 20)"
    process = subprocess.Popen([sys.executable, "-c", hog, str(group / "cgroup.procs")])
    try:
        assert process.wait(30) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()
        group.rmdir()


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (COUNTER.replace("\treturn 0;", "\tno_such = 1;\n\treturn 0;"), 8, "use of undeclared identifier"),
        (
            COUNTER.replace("seen.increment(pid);", "u64 *v = seen.lookup(&pid); *v = 1;"),
            7,
            "map_value_or_null",
        ),
        (COUNTER.replace("sched_process_exec", "no_such_event"), None, "no_such_event"),
        (COUNTER.replace("from seen", "from other"), None, "no such maps: other"),
        (COUNTER.replace("pid:u32", "pid:u64"), None, "keys of seen have 4 bytes, the labels 8"),
        (COUNTER.replace("u64, 64", "u64, 8192"), None, "8192 entries"),
    ],
    ids=["compiler", "verifier", "event", "map", "key", "size"],
)
def test_a_bad_program_is_refused_with_file_line_and_reason(
    folder: Path, start, text: str, line: int | None, said: str
) -> None:
    (folder / "bad.bpf.c").write_text(text)
    report = reports(start())["bad"]
    assert report.state == "refused"
    assert report.since_ns is None
    assert said in (report.reason or "")
    assert report.remedy
    if line is not None:
        assert f"bad.bpf.c:{line}" in (report.reason or "")


def test_a_compile_without_end_is_given_up_and_one_without_bounds_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = CustomFile("big", folder / "big.bpf.c", COUNTER, "x")
    spec = parse("big", str(file.path), COUNTER)
    monkeypatch.setattr(program, "LIMITS", CompileLimits(0.05, 2 << 30))
    with pytest.raises(LoadError, match="no answer within"):
        load(file, spec)
    monkeypatch.setattr(program, "LIMITS", CompileLimits(20.0, 200 << 20))
    with pytest.raises(LoadError, match=r"big\.bpf\.c"):
        load(file, spec)


def test_points_that_are_not_there_are_refused_by_name(folder: Path, start) -> None:
    head = COUNTER.replace("// hotstage-metric", "// hotstage-uprobe: f {}\n// hotstage-metric", 1)
    head += "int f(struct pt_regs *ctx) { return 0; }\n"
    library = f"/lib/{platform.machine()}-linux-gnu/libc.so.6"
    for name, point in (
        ("symbol", f"{library} no_such"),
        ("file", "/no/such.so f"),
        ("device", "/dev/null f"),
    ):
        (folder / f"{name}.bpf.c").write_text(head.replace("{}", point, 1))
    found = {name: each.reason or "" for name, each in reports(start()).items()}
    assert "exports no function no_such" in found["symbol"]
    assert "/no/such.so" in found["file"]
    assert "/dev/null" in found["device"] or "regular" in found["device"]


def test_nothing_stays_when_it_is_closed(folder: Path, start) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    (folder / "a.bpf.c").write_text(COUNTER)
    probes = start()
    assert reports(probes)["a"].state == "attached"
    probes.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_map_of_gigabytes_is_refused(folder: Path, start) -> None:
    (folder / "huge.bpf.c").write_text(
        COUNTER.replace("BPF_HASH", "BPF_ARRAY(huge, u64, 16777216);\nBPF_HASH", 1)
    )
    report = reports(start())["huge"]
    assert report.state == "refused"
    assert "bytes of kernel memory" in (report.reason or "")


def test_a_compile_opens_headers_alone_whatever_the_text_says(folder: Path) -> None:
    """Past the check of the text: what it would let through cannot be read all the same."""
    if not is_landlock_here():
        pytest.skip("this kernel has no Landlock")
    secret = folder / "secret"
    secret.write_text("SECRET_OF_ANOTHER_FILE")
    spec = parse("a", "a.bpf.c", COUNTER)
    for text in (f'#include "{secret}"\n', f'__asm__(".incbin \\"{secret}\\"");\n'):
        with pytest.raises(LoadError) as error:
            load(CustomFile("a", folder / "a.bpf.c", COUNTER + text, "x"), spec)
        assert "SECRET" not in str(error.value)
        assert "Permission denied" in str(error.value) or "Could not find" in str(error.value)
    load(CustomFile("a", folder / "a.bpf.c", COUNTER, "x"), spec).close()


def test_a_compile_ends_with_the_agent_that_asked_for_it() -> None:
    bomb = "#define A0 x+x+x+x+x+x+x+x\n" + "".join(
        f"#define A{n} {'+'.join([f'A{n - 1}'] * 8)}\n" for n in range(1, 12)
    )
    text = bomb + "int f(void *c) { int x = 1; return A11; }"
    code = (
        "from hotstage.probes.loader.bcc_compiler import *\n"
        f"compile_with_bcc({text!r}, [Function('f')], [], limits=CompileLimits(60.0, 2 << 30))"
    )
    asker = subprocess.Popen([sys.executable, "-c", code])
    children = Path(f"/proc/{asker.pid}/task/{asker.pid}/children")
    try:
        deadline = time.monotonic() + 20.0
        while not (found := children.read_text().split()) or not is_compiling(int(found[0])):
            assert time.monotonic() < deadline, "no compile began"
            time.sleep(0.02)
    finally:
        asker.kill()
        asker.wait()
    deadline = time.monotonic() + 5.0
    while Path(f"/proc/{found[0]}/exe").exists():
        assert time.monotonic() < deadline, "the compile outlived who asked for it"
        time.sleep(0.02)


def is_compiling(pid: int) -> bool:
    try:
        return "libLLVM" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False
