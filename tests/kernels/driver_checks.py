# SPDX-License-Identifier: Apache-2.0
"""Inside a booted kernel with real DRM drivers: each of their tracepoints that fires is counted as often as
ftrace saw it and as CO-RE counted it, and each that is absent says why.

vgem signals fences on request; virtio_gpu emits its own for each command to its device. amdgpu, i915 and xe
are loaded without hardware: their events can be attached to, and nothing fires them.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kernels.guest import tell
from tests.kernels.image import LATE_MODULES

from hotstage.clock import SystemClock
from hotstage.errors import HotstageError
from hotstage.host.cgroups import places_of, read_cgroup
from hotstage.probes import bpf
from hotstage.probes.driver.counting import attach_counters, countable
from hotstage.probes.driver.report import DriverReport, EventReport, EventState, Timeline
from hotstage.probes.driver.table import TABLE, Event, index_of
from hotstage.probes.driver.watch import DriverWatch
from hotstage.probes.loader.bcc_compiler import CompileLimits
from hotstage.probes.loader.libbpf import OBJECTS
from hotstage.probes.loader.raw_tracepoint import load_raw_tracepoint
from hotstage.probes.loader.typed_tracepoints import TypedTracepoints
from hotstage.probes.maps.reader import HashReader
from hotstage.probes.maps.scheduling import CPU_KEY_DTYPE, CPU_STAT_DTYPE
from hotstage.probes.page_faults import followed, measure

TRACING = Path("/sys/kernel/tracing")
COMPILE_SECONDS = 500.0
FENCES = 23
FAULTS = 1009
SERIES = tuple(int(part) for part in platform.release().split(".")[:2])


def _ioctl(direction: int, number: int, size: int, kind: str = "d") -> int:
    return direction << 30 | size << 16 | ord(kind) << 8 | number  # <asm-generic/ioctl.h>


READ_WRITE, WRITE = 3, 1
VERSION = _ioctl(READ_WRITE, 0x00, 64)  # <drm/drm.h>
CREATE_DUMB = _ioctl(READ_WRITE, 0xB2, 32)
HANDLE_TO_FD = _ioctl(READ_WRITE, 0x2D, 12)
FENCE_ATTACH = _ioctl(READ_WRITE, 0x41, 16)  # <drm/vgem_drm.h>
FENCE_SIGNAL = _ioctl(WRITE, 0x42, 8)
RESOURCE_CREATE = _ioctl(READ_WRITE, 0x44, 56)  # <drm/virtgpu_drm.h>
WAIT = _ioctl(READ_WRITE, 0x48, 8)
BUFFER_SYNC = _ioctl(WRITE, 0, 8, "b")  # <linux/dma-buf.h>


class Card:
    """A DRM device, by the name of its driver."""

    def __init__(self, driver: str) -> None:
        for path in sorted(Path("/dev/dri").glob("card*")):
            self.fd = os.open(path, os.O_RDWR)
            if self._driver() == driver:
                return
            os.close(self.fd)
        pytest.fail(f"no card of {driver}")

    def _driver(self) -> str:
        """struct drm_version: three ints, then length and place of name, date, description."""
        name = ctypes.create_string_buffer(32)
        self.call(VERSION, "<4i6Q", 0, 0, 0, 0, 31, ctypes.addressof(name), 0, 0, 0, 0)
        return name.value.decode()

    def call(self, request: int, layout: str, *values: int) -> tuple[int, ...]:
        data = bytearray(struct.pack(layout, *values))
        fcntl.ioctl(self.fd, request, data)
        return struct.unpack(layout, data)

    def dumb(self) -> int:
        """A buffer's handle."""
        return self.call(CREATE_DUMB, "<6IQ", 16, 16, 32, 0, 0, 0, 0)[4]


@pytest.fixture(scope="module")
def watch() -> Iterator[DriverWatch]:
    """Compiles take minutes where the machine is emulated."""
    limits = CompileLimits(deadline_seconds=COMPILE_SECONDS)
    watch = DriverWatch(SystemClock(), lambda: [os.getpid()], ioctls=True, slow_ioctl_ns=1, limits=limits)
    began = time.monotonic()
    watch.start()
    state = watch.wait(COMPILE_SECONDS)
    report = watch.report(None)
    tell(compile_seconds=round(time.monotonic() - began, 1), state=state, reason=report.reason)
    assert (state, report.reason) == ("watching", None)
    yield watch
    watch.close()


@pytest.fixture(scope="module")
def twins(watch: DriverWatch) -> Iterator[dict[str, int]]:
    """CO-RE's counter of each event that bcc is attached to: `group:name` → descriptor of the counts."""
    attached = {event.event for event in watch.report(None).events if event.state is EventState.ATTACHED}
    compiled, reasons = attach_counters(countable(each for each in TABLE if each.event in attached), OBJECTS)
    assert not reasons
    yield {event: compiled.maps["event_counts"] for event in compiled.tracepoints}
    compiled.close()


class Window:
    """Both counts of every event between two moments, and ftrace's lines of some."""

    def __init__(self, watch: DriverWatch, twins: dict[str, int], *groups: str) -> None:
        self._watch, self._twins, self._groups = watch, twins, groups
        for group in groups:
            (TRACING / "events" / group / "enable").write_text("1")
        (TRACING / "trace").write_text("")
        self._before = self._counts()

    def _counts(self) -> dict[str, tuple[int, int]]:
        hits = {event.event: event.hits for event in self._watch.report(None).events}
        return {name: (hits[name] or 0, _twin(fd, name)) for name, fd in self._twins.items()}

    def close(self) -> dict[str, tuple[int, int, int]]:
        """`group:name` → (bcc, CO-RE, ftrace), of those that fired."""
        time.sleep(1.0)
        after = self._counts()
        lines = (TRACING / "trace").read_text().splitlines()
        for group in self._groups:
            (TRACING / "events" / group / "enable").write_text("0")
        found = {}
        for name, (bcc, core) in after.items():
            seen = sum(f" {name.split(':')[1]}: " in line for line in lines)
            counts = bcc - self._before[name][0], core - self._before[name][1], seen
            if any(counts):
                found[name] = counts
        return found


def _event(name: str) -> Event:
    return next(event for event in TABLE if event.event == name)


def _twin(fd: int, name: str) -> int:
    value = bpf.lookup(fd, struct.pack("<I", index_of(_event(name))), 16)
    return int.from_bytes((value or b"")[:8], "little")


def _timeline(report: DriverReport, driver: str) -> Timeline | None:
    return next((each for each in report.timelines or () if each.driver == driver), None)


def test_every_other_object_of_the_agent_loads() -> None:
    """Beside the counters, which the rungs are told of."""
    fds, _ = load_raw_tracepoint(OBJECTS / "xid.bpf.o", "console_line", "console", ("urgent", "lost_lines"))
    for fd in fds:
        os.close(fd)
    programs = (
        "thread_left",
        "host_reclaim_begin",
        "host_reclaim_end",
        "cgroup_reclaim_begin",
        "cgroup_reclaim_end",
    )
    try:
        scheduling = TypedTracepoints(OBJECTS / "sched.bpf.o", programs, entries={}, shared={})
        scheduling.attach()
        scheduling.close()
    except HotstageError as error:
        pytest.fail(str(error))


def test_page_faults_are_counted_as_getrusage_does() -> None:
    """Python's own faults between the looks are in one number and not in the other, and few."""
    counting = TypedTracepoints(OBJECTS / "sched.bpf.o", ("page_fault",), entries={}, shared={})
    shared = {name: counting.map_fd(name) for name in ("threads", "cpu_stats")}
    price = measure(counting, shared)
    stats = HashReader(shared["cpu_stats"], CPU_KEY_DTYPE, CPU_STAT_DTYPE)
    with mmap.mmap(-1, FAULTS * mmap.PAGESIZE) as pages, followed(shared):
        pages.madvise(mmap.MADV_NOHUGEPAGE)
        before = int(stats.read()[1]["page_faults"].sum())
        counting.attach()
        truth = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(pages)), 1, len(pages))
        truth = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - truth
        counting.detach()
    counted = int(stats.read()[1]["page_faults"].sum()) - before
    counting.close()
    tell(page_faults=[FAULTS, truth, counted], price=repr(price))
    assert FAULTS <= truth < FAULTS + 64
    assert abs(counted - truth) < 64


def test_a_driver_that_is_loaded_later_is_attached_too(watch: DriverWatch) -> None:
    def late() -> EventReport:
        events = watch.report(None).events
        return next(each for each in events if each.event == "amdgpu:amdgpu_sched_run_job")

    assert late().state is EventState.ABSENT
    for module in sorted(LATE_MODULES.glob("*.ko")):
        subprocess.run(["/bin/busybox", "insmod", module], check=True, timeout=COMPILE_SECONDS)
    began = time.monotonic()
    while late().state is not EventState.ATTACHED and time.monotonic() < began + COMPILE_SECONDS:
        time.sleep(1.0)
    tell(late_seconds=round(time.monotonic() - began, 1), late=repr(late()))
    assert late().state is EventState.ATTACHED
    assert watch.report(None).reason is None


def test_every_event_is_attached_or_absent_with_its_reason(watch: DriverWatch) -> None:
    events = {event.event: event for event in watch.report(None).events}
    tell(events={name: [str(event.state), event.reason] for name, event in events.items()})
    attached = {name for name, event in events.items() if event.state is EventState.ATTACHED}
    wanted = {
        "gpu_scheduler:drm_run_job",
        "gpu_scheduler:drm_sched_job",
        "gpu_scheduler:drm_sched_process_job",
        "amdgpu:amdgpu_sched_run_job",
        *(
            f"dma_fence:dma_fence_{name}"
            for name in ("emit", "signaled", "destroy", "wait_start", "wait_end")
        ),
        "oom:mark_victim",
        "syscalls:sys_enter_ioctl",
        "syscalls:sys_exit_ioctl",
    }
    assert wanted <= attached
    assert ("xe:xe_sched_job_exec" in attached) == (SERIES >= (6, 8))
    for name in ("amdgpu:amdgpu_cs_ioctl", *(["xe:xe_sched_job_run"] if SERIES >= (6, 8) else [])):
        assert events[name].reason == "gpu_scheduler:drm_run_job stands for it, being earlier in the list"
    for name in ("gpu_mem:gpu_mem_total", "nvidia:nvidia_dev_xid", "i915:i915_request_submit"):
        assert not (TRACING / "events" / name.replace(":", "/")).exists()
        assert events[name].state is EventState.ABSENT
        assert "tracefs has no such event" in (events[name].reason or "")
    assert watch.report(None).queue_submit.through == "gpu_scheduler:drm_run_job"


def test_vgems_fences_are_counted_alike_by_bcc_core_and_ftrace(
    watch: DriverWatch, twins: dict[str, int]
) -> None:
    card = Card("vgem")
    window = Window(watch, twins, "dma_fence")
    fences = [card.call(FENCE_ATTACH, "<4I", card.dumb(), 1, 0, 0)[2] for _ in range(FENCES)]
    for fence in fences:
        card.call(FENCE_SIGNAL, "<2I", fence, 0)
    os.close(card.fd)
    found = window.close()
    tell(vgem=found)
    assert found["dma_fence:dma_fence_signaled"] == (FENCES,) * 3
    assert found["dma_fence:dma_fence_destroy"] == (FENCES,) * 3
    # vgem never says that it emits one: there is no latency, and nothing is open
    assert "dma_fence:dma_fence_emit" not in found
    assert _timeline(watch.report(None), "vgem") is None


def test_virtio_gpus_fences_have_a_timeline_and_a_latency(watch: DriverWatch, twins: dict[str, int]) -> None:
    card = Card("virtio_gpu")
    window = Window(watch, twins, "dma_fence")
    before = _timeline(watch.report(None), "virtio_gpu")
    for _ in range(FENCES):
        # PIPE_TEXTURE_2D, B8G8R8X8: virgl's numbers; one layer, no levels, no samples
        handle = card.call(RESOURCE_CREATE, "<14I", 2, 2, 2, 16, 16, 1, 1, 0, 0, 0, 0, 0, 4096, 0)[10]
        card.call(WAIT, "<2I", handle, 0)
    found = window.close()
    after = _timeline(watch.report(None), "virtio_gpu")
    tell(virtio=found, timeline=repr(after))
    os.close(card.fd)
    assert after is not None
    assert len({*found["dma_fence:dma_fence_emit"]}) == 1
    assert len({*found["dma_fence:dma_fence_signaled"]}) == 1
    emitted = found["dma_fence:dma_fence_emit"][0]
    assert emitted >= FENCES
    assert after.emitted - (before.emitted if before else 0) == emitted
    assert after.signaled - (before.signaled if before else 0) == emitted
    assert after.open == 0
    assert after.max_seconds is not None
    assert 0 < after.total_seconds / after.signaled <= after.max_seconds < 60


def test_a_wait_for_a_fence_is_timed_and_its_waiter_named(watch: DriverWatch, twins: dict[str, int]) -> None:
    card = Card("vgem")
    handle = card.dumb()
    buffer = card.call(HANDLE_TO_FD, "<2Ii", handle, os.O_RDWR, 0)[2]
    before = {each.pid: each for each in watch.report(None).fence_waits or ()}.get(os.getpid())
    window = Window(watch, twins, "dma_fence")
    for _ in range(3):
        fence = card.call(FENCE_ATTACH, "<4I", handle, 1, 0, 0)[2]
        later = threading.Timer(0.3, card.call, (FENCE_SIGNAL, "<2I", fence, 0))
        later.start()
        fcntl.ioctl(buffer, BUFFER_SYNC, struct.pack("<Q", 1))  # DMA_BUF_SYNC_READ, begins
        later.join()
    found = window.close()
    after = {each.pid: each for each in watch.report(None).fence_waits or ()}[os.getpid()]
    tell(waits=found, waited=after.total_seconds)
    waits = after.waits - (before.waits if before else 0)
    assert found["dma_fence:dma_fence_wait_start"] == found["dma_fence:dma_fence_wait_end"] == (waits,) * 3
    assert waits >= 3
    waited = after.total_seconds - (before.total_seconds if before else 0)
    assert 0.6 < waited < 10


def test_ioctls_of_a_drm_device_are_counted_by_class(watch: DriverWatch) -> None:
    card = Card("vgem")
    watch.keep_house()
    before = {(each.device, each.kind): each.count for each in watch.report(None).ioctls or ()}
    for _ in range(101):
        card.call(VERSION, "<16I", *[0] * 16)
    handles = [card.dumb() for _ in range(7)]
    for handle in handles:
        card.call(FENCE_SIGNAL, "<2I", card.call(FENCE_ATTACH, "<4I", handle, 0, 0, 0)[2], 0)
    after = {(each.device, each.kind): each.count for each in watch.report(None).ioctls or ()}
    grown = {key: count - before.get(key, 0) for key, count in after.items()}
    tell(ioctls={":".join(key): count for key, count in grown.items()})
    os.close(card.fd)
    assert grown["dri", "open"] == 101
    assert grown["dri", "driver"] == 14


def test_kills_for_memory_are_those_that_the_cgroup_counts(watch: DriverWatch, twins: dict[str, int]) -> None:
    root, group = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/killed")
    (root / "cgroup.subtree_control").write_text("+memory")
    group.mkdir()
    (group / "memory.max").write_text(str(24 << 20))
    window = Window(watch, twins, "oom")
    hog = "import os,sys; open(sys.argv[1],'w').write(str(os.getpid())); bytearray(200 << 20)"
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", hog, group / "cgroup.procs"], check=False, timeout=60)
        assert done.returncode == -signal.SIGKILL
    found = window.close()
    watch.drain()
    kills = watch.report(None).oom_kills or ()
    tell(kills=found, killed=[repr(kill) for kill in kills])
    told = dict(line.split() for line in (group / "memory.events").read_text().splitlines())
    assert found["oom:mark_victim"] == (int(told["oom_kill"]),) * 3 == (2,) * 3
    layout = (TRACING / "events/oom/mark_victim/format").read_text()
    assert (kills[-1].name is not None) == ("comm" in layout)
    group.rmdir()


def test_a_cgroup_that_memory_high_holds_back_is_seen_by_its_events(watch: DriverWatch) -> None:
    """cgroup v2 alone has it; the host's sampler reads the same files as on any host."""
    group = Path("/sys/fs/cgroup/held-back")
    group.mkdir()
    (group / "memory.high").write_text(str(48 << 20))
    grow = (
        "import os,sys,time; open(sys.argv[1],'w').write(str(os.getpid()))\n"
        "held = [bytearray(1 << 20) for _ in range(80)]\ntime.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", grow, group / "cgroup.procs"])
    try:
        time.sleep(20.0)
        places = places_of(process.pid, Path("/proc"), Path("/sys/fs/cgroup"))
        assert places is not None
        found = read_cgroup(places)
    finally:
        process.kill()
        process.wait()
    told = dict(line.split() for line in (group / "memory.events").read_text().splitlines())
    tell(held_back=told, seen=dict(found.events), stalls=repr(found.stalls.get("memory")))
    group.rmdir()
    assert found.memory_high_bytes == 48 << 20
    assert 0 < found.events["high"] <= int(told["high"])
