# SPDX-License-Identifier: Apache-2.0
"""Tracepoints of GPU drivers on a host without a GPU: what fires is counted exactly, what is absent says why.

Fences, waits and GPU memory have no source here: their programs run on stand-in functions that hand over the
same fields.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from hotstage.clock import SystemClock
from hotstage.errors import PreflightError
from hotstage.probes import bpf
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.driver import pieces, readings
from hotstage.probes.driver.layouts import fields_of, macros
from hotstage.probes.driver.pieces import COMMON_MAPS, DTYPES, MAPS_OF, SOURCE, Piece, attach
from hotstage.probes.driver.report import EventState
from hotstage.probes.driver.table import LAUNCH_CALLS, QUEUE_SUBMIT, TABLE, Choice, Event, Use, choose
from hotstage.probes.driver.watch import DriverWatch
from hotstage.probes.loader.bcc_compiler import Compiled, Function, compile_with_bcc, read_layouts
from hotstage.probes.loader.translate import translate
from hotstage.probes.maps.driver import XID

sys.path.insert(0, str(Path(__file__).parent))
from targets import wait_until

PTS = (("pty", "/dev/pts/*"), ("null", "/dev/null"))
TIOCGWINSZ = 0x5413
COMPILE_SECONDS = 40.0


@pytest.fixture(scope="module")
def watch(objects: Path) -> Iterator[DriverWatch]:
    """One for all tests of this module: ptys and /dev/null stand in for GPU devices of this process."""
    watch = DriverWatch(SystemClock(), lambda: [os.getpid()], ioctls=True, slow_ioctl_ns=1, patterns=PTS)
    watch.start()
    assert watch.wait(COMPILE_SECONDS) == "watching", watch.report(None).reason
    yield watch
    watch.close()


def test_every_tracepoint_is_attached_or_says_why_not(watch: DriverWatch) -> None:
    layouts = read_layouts([event.event for event in TABLE])
    report = watch.report(41)
    for event in report.events:
        if event.state is EventState.ATTACHED:
            assert layouts[event.event] is not None
            assert event.hits is not None
            assert event.since_ns is not None
            assert event.reason is None
        else:
            assert event.hits is None
            assert event.reason
    attached = {event.event for event in report.events if event.state is EventState.ATTACHED}
    assert {"oom:mark_victim", "syscalls:sys_enter_ioctl"} <= attached
    assert all(
        layouts[event.event] is None
        for event in report.events
        if event.state is EventState.ABSENT and "no such event" in (event.reason or "")
    )


def test_without_a_drivers_event_launches_stand_for_queue_submit_and_it_says_so(watch: DriverWatch) -> None:
    submit = watch.report(41).queue_submit
    if any(
        event.state is EventState.ATTACHED
        for event in watch.report(0).events
        if event.logical == "queue_submit"
    ):
        pytest.skip("this host has a driver with tracepoints")
    assert (submit.through, submit.is_derived, submit.count) == (LAUNCH_CALLS, True, 41)
    assert "NVIDIA submits from user space" in (submit.reason or "")


def test_ioctls_of_a_device_are_counted_exactly_and_others_are_not(watch: DriverWatch) -> None:
    master, slave = os.openpty()
    path = os.ttyname(slave)
    other = os.open("/dev/zero", os.O_RDONLY)
    try:
        watch.keep_house()
        before = {(each.device, each.kind): each for each in watch.report(None).ioctls or ()}
        for _ in range(251):
            fcntl.ioctl(slave, TIOCGWINSZ, bytes(8))
        for _ in range(13):
            with pytest.raises(OSError):
                fcntl.ioctl(slave, 0x462B, 0)
        for _ in range(17):
            with pytest.raises(OSError):
                fcntl.ioctl(other, TIOCGWINSZ, bytes(8))
        after = {(each.device, each.kind): each for each in watch.report(None).ioctls or ()}
        assert path.startswith("/dev/pts/")

        def grown(kind: str, field: str) -> int:
            was = before.get(("pty", kind))
            return getattr(after["pty", kind], field) - (getattr(was, field) if was else 0)

        assert (grown("other", "count"), grown("other", "errors"), grown("other", "slow")) == (251, 0, 251)
        assert (grown("allocate", "count"), grown("allocate", "errors")) == (13, 13)
    finally:
        for fd in (master, slave, other):
            os.close(fd)
    watch.keep_house()
    assert watch.report(None).lost == 0


def test_a_slow_ioctl_is_told_with_thread_number_and_result(watch: DriverWatch) -> None:
    """Slow is whatever takes a nanosecond here."""
    master, slave = os.openpty()
    try:
        watch.keep_house()
        with pytest.raises(OSError):
            fcntl.ioctl(slave, 0x462B, 0)
    finally:
        os.close(master)
        os.close(slave)
    watch.drain()
    slow = [each for each in watch.report(None).slow_ioctls or () if each.pid == os.getpid()][-1]
    assert (slow.device, slow.kind, slow.number) == ("pty", "allocate", 0x462B)
    assert (slow.tid, slow.result) == (threading.get_native_id(), -errno.ENOTTY)
    assert 0 < slow.seconds < 1


def test_a_kill_for_memory_is_told_with_pid_and_name(watch: DriverWatch, tmp_path: Path) -> None:
    root = Path("/sys/fs/cgroup/memory")
    group = root / f"hotstage-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(24 << 20))
    except OSError as error:
        pytest.skip(f"no memory cgroup may be made here: {error}")
    hog = "import os,sys; open(sys.argv[1],'w').write(str(os.getpid())); bytearray(200 << 20)"
    before = watch.report(None).oom_kills_total or 0
    process = subprocess.Popen([sys.executable, "-c", hog, str(group / "cgroup.procs")])
    try:
        assert process.wait(30) == -signal.SIGKILL

        def is_told() -> bool:
            watch.drain()
            return any(kill.pid == process.pid for kill in watch.report(None).oom_kills or ())

        wait_until(is_told, "the kill was told", 5.0)
    finally:
        process.kill()
        process.wait()
        group.rmdir()
    kill = next(kill for kill in watch.report(None).oom_kills or () if kill.pid == process.pid)
    assert watch.report(None).oom_kills_total == before + 1
    layout = read_layouts(["oom:mark_victim"])["oom:mark_victim"] or ""
    assert (kill.name is not None) == ("comm" in layout)
    assert (kill.anonymous_bytes is None) or kill.anonymous_bytes > 0


def test_one_refused_program_does_not_stop_the_others(objects: Path, tmp_path: Path) -> None:
    broken = tmp_path / "objects"
    (broken / "include").mkdir(parents=True)
    for header in (objects / "include").iterdir():
        (broken / "include" / header.name).write_bytes(header.read_bytes())
    text = (objects / SOURCE).read_text()
    (broken / SOURCE).write_text(text.replace("event->tgid = args->pid;", "event->tgid = args->no_such;"))
    wanted = ["oom:mark_victim", "syscalls:sys_enter_ioctl", "syscalls:sys_exit_ioctl"]
    texts = {name: text for name, text in read_layouts(wanted).items() if text}
    layouts = {name: fields_of(text) for name, text in texts.items()}
    attached = attach(choose(layouts, ioctls=True), layouts, broken)
    try:
        names = {event.event for piece in attached.pieces for event in piece.events}
        assert "syscalls:sys_enter_ioctl" in names
        assert "oom:mark_victim" not in names
        assert "no_such" in attached.reasons["oom:mark_victim"]
    finally:
        for piece in attached.pieces:
            piece.close()


def test_closing_while_it_comes_up_leaves_nothing() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    watch = DriverWatch(SystemClock(), list)
    watch.start()
    watch.close()
    watch.wait(COMPILE_SECONDS)
    assert watch.report(None).state in {"starting", "off"}
    wait_until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before, "descriptors are closed", 10.0)


def test_held_nothing_is_attached_and_afterwards_it_is_again(objects: Path) -> None:
    watch = DriverWatch(SystemClock(), list)
    watch.start()
    try:
        assert watch.wait(COMPILE_SECONDS) == "watching"
        watch.hold("switched off by root")
        report = watch.report(None)
        assert (report.state, report.reason) == ("off", "switched off by root")
        assert not any(event.state is EventState.ATTACHED for event in report.events)
        assert all(event.reason for event in report.events)
        time.sleep(1.1)
        watch.hold(None)
        wait_until(lambda: watch.report(None).state == "watching", "it was attached again", COMPILE_SECONDS)
    finally:
        watch.close()


# ---- events that nothing fires on a host without a GPU: the same programs on functions with the same fields

STAND_IN = """
#include <string.h>
#define HOOK(name) __attribute__((noinline)) void name(unsigned a, unsigned b, unsigned long c) \\
    { __asm__ volatile("" : : "r"(a), "r"(b), "r"(c) : "memory"); }
HOOK(dma_fence_emit) HOOK(dma_fence_signaled) HOOK(dma_fence_destroy)
HOOK(dma_fence_wait_start) HOOK(dma_fence_wait_end) HOOK(gpu_mem_total) HOOK(nvidia_dev_xid)
"""
STAND_IN_ARGUMENTS = """
struct stand_in { u32 context, seqno, gpu_id, pid, error_code; u64 size; char driver[8], timeline[8];
                  u32 data_loc_driver, data_loc_timeline, data_loc_dev, data_loc_msg; };
static __always_inline void fill(struct stand_in *args, struct pt_regs *ctx)
{
    __builtin_memset(args, 0, sizeof(*args));
    args->context = args->gpu_id = PT_REGS_PARM1(ctx);
    args->seqno = args->pid = PT_REGS_PARM2(ctx);
    args->size = PT_REGS_PARM3(ctx);
    args->data_loc_driver = offsetof(struct stand_in, driver);
    args->data_loc_timeline = offsetof(struct stand_in, timeline);
    args->error_code = args->pid;
    args->data_loc_dev = args->data_loc_driver;
    args->data_loc_msg = args->data_loc_timeline;
    args->driver[0] = 'd';
    args->timeline[0] = 'a' + args->context % 2;
}
"""
HOOKS = ("emit", "signaled", "destroy", "wait_start", "wait_end")


@pytest.fixture(scope="module")
def stand_in(objects: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(STAND_IN)
    library = folder / "libdriver.so"
    subprocess.run(["gcc", "-O1", "-fPIC", "-shared", "-o", library, folder / "driver.c"], check=True)
    others = ("gpu_mem:gpu_mem_total", "nvidia:nvidia_dev_xid")
    events = [e for e in TABLE if e.event.startswith("dma_fence:") or e.event in others]
    names = [event.bare_name for event in events]
    text = re.sub(
        r"TRACEPOINT_PROBE\((?:dma_fence|gpu_mem|nvidia), (\w+)\)\n\{",
        r"int on_\1(struct pt_regs *ctx)\n{\n struct stand_in filled, *args = &filled;\n fill(args, ctx);",
        translate(objects / SOURCE),
    )
    text = text.replace(
        "static __always_inline void lose(void)",
        STAND_IN_ARGUMENTS + "static __always_inline void lose(void)",
    )
    maps = [
        *COMMON_MAPS,
        *(name for kind in ("fences", "fence waits", "gpu memory") for name in MAPS_OF[kind]),
    ]
    with ExitStack() as stack:
        functions = [Function(f"on_{name}", "kprobe", bpf.ATTACH_UPROBE_MULTI) for name in names]
        compiled: Compiled = compile_with_bcc(
            text, functions, maps, defines=macros(events, {event.event: () for event in events})
        )
        piece = Piece(events, compiled)
        stack.callback(piece.close)
        fd = os.open(library, os.O_RDONLY)
        stack.callback(os.close, fd)
        offsets = read_elf(fd).functions
        for name in names:
            program = compiled.programs[f"on_{name}"]
            link = bpf.link_multi(
                program,
                bpf.ATTACH_UPROBE_MULTI,
                str(library),
                [(offsets[name].offset, 0, 0)],
                on_return=False,
            )
            stack.callback(os.close, link)
        yield SimpleNamespace(piece=piece, calls=ctypes.CDLL(str(library)))


def test_fences_are_counted_timed_and_forgotten_by_timeline(stand_in: SimpleNamespace) -> None:
    calls, piece = stand_in.calls, stand_in.piece
    for number in range(101):
        calls.dma_fence_emit(2, number, 0)
    time.sleep(0.02)
    for number in range(97):
        calls.dma_fence_signaled(2, number, 0)
    calls.dma_fence_destroy(2, 97, 0)
    calls.dma_fence_signaled(2, 500, 0)  # emitted before anybody looked
    calls.dma_fence_emit(3, 1, 0)
    found = {
        each.timeline: each
        for each in readings.timelines(
            piece.read("timelines"), piece.read("open_fences"), time.monotonic_ns()
        )
    }
    even, odd = found["a"], found["b"]
    assert (even.driver, even.emitted, even.signaled, even.open) == ("d", 101, 97, 3)
    assert (odd.emitted, odd.signaled, odd.open) == (1, 0, 1)
    assert even.p50_seconds is not None
    assert 0.015 < even.p50_seconds < (even.max_seconds or 0) * 1.1
    assert even.total_seconds >= 97 * 0.02
    assert (even.oldest_open_seconds or 0) >= 0.02
    hits = {event.bare_name: piece.hits()[event.event][0] for event in piece.events}
    assert hits["dma_fence_emit"] == 102
    assert hits["dma_fence_signaled"] == 98
    assert piece.lost() == 0


def test_waits_for_fences_are_summed_by_process(stand_in: SimpleNamespace) -> None:
    calls = stand_in.calls
    for _ in range(7):
        calls.dma_fence_wait_start(0, 0, 0)
        time.sleep(0.002)
        calls.dma_fence_wait_end(0, 0, 0)
    calls.dma_fence_wait_end(0, 0, 0)  # begun before anybody looked
    (waits,) = readings.fence_waits(stand_in.piece.read("fence_waits"))
    assert (waits.pid, waits.waits) == (os.getpid(), 7)
    assert 0.014 <= waits.total_seconds < 1


def test_gpu_memory_is_what_was_told_last(stand_in: SimpleNamespace) -> None:
    calls = stand_in.calls
    calls.gpu_mem_total.argtypes = [ctypes.c_uint, ctypes.c_uint, ctypes.c_ulong]
    for size in (4096, 1 << 40):
        calls.gpu_mem_total(1, 0, size)
        calls.gpu_mem_total(1, os.getpid(), size // 2)
    found = readings.gpu_memory(stand_in.piece.read("gpu_memory"))
    assert sorted((each.gpu, each.pid or 0, each.bytes) for each in found) == [
        (1, 0, 1 << 40),
        (1, os.getpid(), 1 << 39),
    ]


def test_an_xid_of_the_drivers_own_tracepoint_arrives_with_gpu_number_and_text(
    stand_in: SimpleNamespace,
) -> None:
    before_ns = time.monotonic_ns()
    stand_in.calls.nvidia_dev_xid(0, 79, 0)
    (event,) = (readings.xid_event(row) for row in stand_in.piece.drain()[XID])
    assert (event.xid, event.pci_bus_id, event.text, event.source) == (79, "d", "a", "tracepoint")
    assert before_ns < event.at_ns < time.monotonic_ns()


def test_jobs_are_counted_by_ring_where_the_event_names_one(objects: Path, tmp_path: Path) -> None:
    """An event that every kernel has stands in for a driver's; the file that is executed, for the ring."""
    name = "sched:sched_process_exec"
    event = Event(name, QUEUE_SUBMIT, "stand-in", Use.COUNTED, rings=("filename",))
    layouts = {name: fields_of(read_layouts([name])[name] or "")}
    attached = attach(Choice((event,), {}), layouts, objects)
    (piece,) = attached.pieces
    try:
        program = tmp_path.parents[-2] / f"hs-{os.getpid()}"
        shutil.copy("/bin/true", program)
        before = piece.hits()[event.event][0]
        for _ in range(23):
            subprocess.run([program], check=True)
        assert piece.hits()[event.event][0] - before >= 23
        rows = piece.read("ring_submits")
        assert rows is not None
        assert readings.rings(rows)[str(program)] == 23
    finally:
        piece.close()
        program.unlink()


def test_the_kernels_structures_are_those_of_python(stand_in: SimpleNamespace) -> None:
    """Sizes were compared when the readers were made; here that none of the maps was left out."""
    readable = {name for name in DTYPES if stand_in.piece.read(name) is not None}
    assert readable == {"ring_submits", "open_fences", "timelines", "fence_waits", "gpu_memory"}


def test_without_bcc_events_are_counted_alone_and_it_says_so(
    watch: DriverWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kills for memory, as the watch with bcc counts them; no record says whose."""
    lack = PreflightError("bcc is not installed", remedy="install it")

    def refuse(*_: object, **__: object) -> Compiled:
        raise lack

    monkeypatch.setattr(pieces, "compile_with_bcc", refuse)
    alone = DriverWatch(SystemClock(), list, ioctls=True)
    alone.start()
    try:
        assert alone.wait(COMPILE_SECONDS) == "watching"
        report = alone.report(None)
        assert (report.reason, report.remedy) == ("counted alone: bcc is not installed", "install it")
        assert (report.oom_kills_total, report.oom_kills, report.oom_kills_gpu_total) == (0, None, None)
        states = {each.event: each for each in report.events}
        assert states["syscalls:sys_enter_ioctl"].reason == "bcc is not installed"
        with_bcc = {each.event for each in watch.report(None).events if each.state is EventState.ATTACHED}
        counted = {name for name, each in states.items() if each.state is EventState.ATTACHED}
        assert counted == {name for name in with_bcc if not name.startswith("syscalls:")}
    finally:
        alone.close()
