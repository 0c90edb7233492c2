# SPDX-License-Identifier: Apache-2.0
"""What threads in the GPU path wait for a CPU and why they are off it, against what /proc tells of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.bpf.conftest import SOURCES, Build, Probes, Workload, start_probes

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.host.pressure import PressureReader
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.loader.base import MapSizes, Rung
from hotstage.probes.maps.layout import NO_STAGE
from hotstage.probes.page_faults import PageFaults
from hotstage.probes.scheduler import SHARED_MAPS, Scheduler

sys.path.insert(0, str(Path(__file__).parent))
from targets import wait_until

PREPROCESS, VISION, DECODE = 3, 8, 13
IMAGE = 1
PAGES = 4099
CPU = max(os.sched_getaffinity(0))
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Truth:
    """What /proc says of one thread."""

    run_delay_ns: int
    voluntary: int
    involuntary: int

    @classmethod
    def of(cls, pid: int, tid: int | None = None) -> Truth:
        folder = Path(f"/proc/{pid}/task/{tid or pid}")
        fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        return cls(
            int((folder / "schedstat").read_text().split()[1]),
            int(fields["voluntary_ctxt_switches"]),
            int(fields["nonvoluntary_ctxt_switches"]),
        )


class Target(Workload):
    """`target/scheduling.c`, in the GPU path and at rest when this is made."""

    def __init__(self, path: Path, watch: Watch) -> None:
        super().__init__(path)
        self.watch = watch
        self.do("launch")
        self.do("sleep", "-", 1, 1000)  # from here on it is followed
        self.rest()

    def rest(self) -> None:
        """Wait until it sleeps and reads its next command: then /proc and the maps stand still."""
        state = Path(f"/proc/{self.pid}/stat")
        wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "S", "the target is at rest")

    def truth(self) -> Truth:
        self.rest()
        return Truth.of(self.pid)

    def counted(self) -> np.void:
        """The row of its one thread."""
        sample = self.watch.read()
        (row,) = sample.threads[sample.threads["tid"] == self.pid]
        return row

    def stage(self, stage: int) -> np.void | None:
        sample = self.watch.read()
        rows = sample.stats[(sample.keys["tgid"] == self.pid) & (sample.keys["stage"] == stage)]
        return rows[0] if len(rows) else None


class Watch:
    """The scheduler's programs beside some counters."""

    def __init__(self, probes: Probes, stack: ExitStack) -> None:
        self.probes = probes
        self.scheduler = Scheduler()
        fds = {name: probes.loader.map_fd(name) for name in SHARED_MAPS}
        self.scheduler.start(fds, probes.maps.histograms, threads=4096)
        stack.callback(self.scheduler.close)
        assert self.scheduler.side.state == "watching", self.scheduler.side

    def read(self):  # type: ignore[no-untyped-def]
        sample = self.scheduler.read(1)
        assert sample is not None
        return sample


@pytest.fixture(scope="module", params=["libbpf", "bcc"])
def watch(request: pytest.FixtureRequest, build: Build, objects: Path) -> Iterator[Watch]:
    rung = Rung.SESSION if request.param == "libbpf" else Rung.MULTI
    with ExitStack() as stack:
        yield Watch(start_probes(build, rung, stack, compiler=request.param), stack)


@pytest.fixture(scope="session")
def program(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("scheduling") / "scheduling"
    linked = [build.cuda, build.marks, f"-Wl,-rpath,{build.cuda.parent}"]
    command = ["gcc", "-O2", "-Wall", "-pthread", "-o", built, SOURCES / "scheduling.c", *linked]
    subprocess.run(command, check=True)
    return built


@pytest.fixture
def start(watch: Watch, program: Path) -> Iterator[Callable[[], Target]]:
    started: list[Target] = []

    def make() -> Target:
        started.append(Target(program, watch))
        return started[-1]

    yield make
    for target in started:
        target.close()


@pytest.fixture
def rival() -> Iterator[Callable[[], None]]:
    """Something that never lets go of the CPU by itself."""
    started: list[subprocess.Popen[bytes]] = []

    def begin() -> None:
        spin = f"import os\nos.sched_setaffinity(0, [{CPU}])\nprint(flush=True)\nwhile True: pass"
        process = subprocess.Popen([sys.executable, "-S", "-c", spin], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout
        process.stdout.read(1)

    yield begin
    for process in started:
        process.kill()
        process.communicate(timeout=10)


def test_waits_and_switches_are_those_that_proc_tells(
    start: Callable[[], Target], rival: Callable[[], None]
) -> None:
    target = start()
    target.do("pin", "-", CPU)
    rival()
    target.do("stage", "-", VISION, IMAGE)
    before, counted = target.truth(), target.counted()
    target.do("spin", "-", 60_000)
    target.do("sleep", "-", 7, 2000)
    target.do("yield", "-", 5)
    target.do("spin", "-", 30_000)
    after, row = target.truth(), target.counted()
    grew = {name: int(row[name]) - int(counted[name]) for name in ("voluntary", "involuntary")}
    assert grew["voluntary"] == after.voluntary - before.voluntary >= 7
    assert grew["involuntary"] == after.involuntary - before.involuntary >= 5
    waits = [int(each["woken_wait_ns"]) + int(each["preempted_wait_ns"]) for each in (counted, row)]
    assert waits[1] - waits[0] == after.run_delay_ns - before.run_delay_ns
    assert waits[1] - waits[0] > 40_000_000  # half of the CPU was the rival's


def test_a_preempted_thread_waits_and_does_not_sleep(
    start: Callable[[], Target], rival: Callable[[], None]
) -> None:
    target = start()
    target.do("pin", "-", CPU)
    target.do("stage", "-", VISION, IMAGE)
    rival()
    target.do("spin", "-", 100_000)
    target.do("stage", "-", DECODE, IMAGE)
    target.rest()
    row = target.stage(VISION)
    assert row is not None
    assert row["involuntary"] > 5
    assert row["preempted_wait_ns"][0] > 50_000_000
    assert row["preempted_wait_ns"][0] > 5 * row["woken_wait_ns"][0]
    histogram = target.watch.read().histograms[row["histogram_slot"]]
    assert histogram.sum() == row["voluntary"] + row["involuntary"]


def test_a_sleeper_sleeps_of_its_own_will(start: Callable[[], Target]) -> None:
    target = start()
    target.do("stage", "-", PREPROCESS, IMAGE)
    target.do("sleep", "-", 10, 5000)
    target.do("stage", "-", DECODE, IMAGE)
    target.rest()
    row = target.stage(PREPROCESS)
    assert row is not None
    assert row["voluntary"] >= 10
    assert row["sleep_ns"][0] >= 50_000_000
    assert row["sleep_ns"][1] == 0


def test_a_thread_blocked_on_a_mutex_sleeps_outside_of_calls(start: Callable[[], Target]) -> None:
    target = start()
    target.do("stage", "-", PREPROCESS, IMAGE)
    before = target.counted()
    target.do("mutex", "-", 40_000)
    target.rest()
    assert int(target.counted()["sleep_ns"]) - int(before["sleep_ns"]) > 30_000_000


def test_sleep_inside_a_call_is_kept_apart(start: Callable[[], Target]) -> None:
    target = start()
    target.do("stage", "-", DECODE, IMAGE)
    target.say("block")
    wait_until(lambda: int(target.counted()["in_call"]) == 1, "the call sleeps")
    target.process.stdin.write(b"x")
    target.wait("the call ends")
    target.do("sleep", "-", 1, 1000)
    target.rest()
    row = target.stage(DECODE)
    assert row is not None
    assert row["sleep_ns"][1] > 0
    assert int(target.counted()["in_call"]) == 0


def test_who_makes_no_call_and_no_mark_is_not_followed(watch: Watch, rival: Callable[[], None]) -> None:
    rival()
    own = watch.read().threads["tgid"].tolist()
    assert os.getpid() not in own
    assert set(own) <= set(watch.probes.maps.threads()["tgid"].tolist())


def test_threads_that_come_and_go_in_thousands_leave_nothing(
    start: Callable[[], Target], watch: Watch
) -> None:
    target = start()
    target.do("lives", "-", 1000)
    sample = watch.read()
    tids = [
        int(tid) for tid in sample.threads["tid"][sample.threads["tgid"] == target.pid] if tid != target.pid
    ]
    assert len(tids) == 1000
    watch.scheduler.forget([], tids)
    assert watch.read().threads["tid"][watch.read().threads["tgid"] == target.pid].tolist() == [target.pid]
    unmarked = target.stage(NO_STAGE)
    assert unmarked is not None and unmarked["voluntary"] >= 1000
    target.close()
    watch.scheduler.forget([target.pid], [])
    sample = watch.read()
    assert target.pid not in sample.threads["tgid"] and target.pid not in sample.keys["tgid"]
    assert watch.probes.losses().get("lost_scheduling", 0) == 0


def test_beyond_the_map_threads_are_lost_by_name(build: Build, objects: Path, program: Path) -> None:
    with ExitStack() as stack:
        probes = start_probes(build, Rung.SESSION, stack, MapSizes())
        watch = Watch(probes, stack)
        watch.scheduler.close()
        fds = {name: probes.loader.map_fd(name) for name in SHARED_MAPS}
        watch.scheduler.start(fds, probes.maps.histograms, threads=1)
        first, second = (Workload(program) for _ in range(2))
        for target in (first, second):
            stack.callback(target.close)
            target.do("launch")
            target.do("sleep", "-", 3, 1000)
        assert watch.read().threads["tgid"].tolist() == [first.pid]
        assert probes.losses()["lost_scheduling"] >= 3


def test_page_faults_are_those_that_getrusage_tells(
    start: Callable[[], Target], watch: Watch, tmp_path: Path
) -> None:
    target, faults = start(), watch.scheduler.page_faults
    fds = {name: watch.probes.loader.map_fd(name) for name in SHARED_MAPS}
    told = tmp_path / "told"

    def touched(pages: int, stage: int) -> int:
        target.do("faults", told, pages, stage)
        return int(told.read_text())

    assert watch.read().page_fault_epoch is None
    watch.scheduler.start_page_faults(fds)
    try:
        assert faults.side.state == "watching", faults.side
        touched(7, PREPROCESS)  # code and libraries are in memory from here on
        truth = touched(PAGES, VISION)
        row = target.stage(VISION)
        assert row is not None
        assert truth == row["page_faults"] == PAGES
        assert watch.read().page_faults_by_pid()[target.pid] >= PAGES
        assert faults.price is not None
        assert 0 < faults.price.followed < 100_000
        assert os.getpid() not in watch.read().page_faults_by_pid()

        epoch = watch.read().page_fault_epoch
        faults.hold("test", "a test")
        assert (faults.side.state, faults.side.reason) == ("off", "a test")
        assert watch.read().page_fault_epoch is None
        touched(PAGES, VISION)
        faults.hold("test", None)
        row = target.stage(VISION)
        assert row is not None
        assert row["page_faults"] == PAGES
        assert watch.read().page_fault_epoch not in (None, epoch)
    finally:
        faults.close()


def test_a_kernel_without_the_tracepoint_says_so(tmp_path: Path) -> None:
    (tmp_path / "vmlinux").write_bytes(b"\0btf_trace_page_fault_kernel\0")
    faults = PageFaults(btf=tmp_path / "vmlinux")
    faults.start({})
    assert faults.side.state == "off"
    assert "no tracepoint exceptions:page_fault_user" in (faults.side.reason or "")
    assert faults.epoch is None


def test_between_two_epochs_nothing_is_counted(start: Callable[[], Target], watch: Watch) -> None:
    target = start()
    target.do("stage", "-", PREPROCESS, IMAGE)
    watch.scheduler.hold("test", "a test")
    assert watch.scheduler.side.reason == "a test"
    assert watch.scheduler.read(1) is None
    target.do("sleep", "-", 1, 200_000)
    watch.scheduler.hold("another", None)
    assert watch.scheduler.read(1) is None
    watch.scheduler.hold("test", None)
    target.do("sleep", "-", 3, 1000)
    target.rest()
    row = target.stage(PREPROCESS)
    assert row is None or row["sleep_ns"][0] < 150_000_000


def test_the_engine_says_whether_it_watches_and_obeys_what_holds_it_back(
    objects: Path, tmp_path: Path
) -> None:
    (tmp_path / "4242").mkdir()
    for is_wanted in (False, True):
        config = ProbesConfig(
            scheduler=is_wanted, page_faults=True, xid=False, driver=False, proc_root=str(tmp_path)
        )
        engine = ProbeEngine(config, SystemClock())
        engine.start()
        try:
            side = engine.coverage().scheduler
            assert side.state == ("watching" if is_wanted else "off")
            assert (side.reason is None) == is_wanted
            faults = engine.coverage().page_faults
            assert faults.state == side.state
            if not is_wanted:
                assert "needs [probes] scheduler" in (faults.reason or "")
                continue
            costs = engine.restraint.view().costs
            assert costs.page_fault is not None and costs.page_fault >= 0
            assert engine.coverage().map_bytes["cpu_threads"] > 0
            engine.restraint.let_go("a test")
            engine.read_slow()
            assert (engine.coverage().scheduler.state, engine.coverage().scheduler.reason) == (
                "off",
                "a test",
            )
            assert engine.coverage().page_faults.reason == "a test"
            engine.restraint.take_up()
            engine.read_slow()
            assert engine.coverage().scheduler.state == engine.coverage().page_faults.state == "watching"
        finally:
            engine.close()


@pytest.fixture
def cgroup() -> Iterator[Callable[[str, str, str], Path]]:
    """A cgroup of its own with one limit; skips where none can be made."""
    made: list[Path] = []

    def make(controller: str, file: str, value: str) -> Path:
        folder = CGROUPS / controller / f"hotstage-sched-{os.getpid()}"
        try:
            folder.mkdir()
            made.append(folder)
            (folder / file).write_text(value)
        except OSError as error:
            pytest.skip(f"no cgroup of {controller} can be made here: {error}")
        return folder

    yield make
    for folder in made:
        wait_until(lambda folder=folder: not (folder / "cgroup.procs").read_text(), f"{folder} is empty")
        folder.rmdir()


def test_a_quota_is_waiting_for_the_cpu(
    cgroup: Callable[[str, str, str], Path], watch: Watch, program: Path
) -> None:
    folder = cgroup("cpu", "cpu.cfs_quota_us", "20000")
    target = Target(program, watch)
    try:
        target.do("stage", "-", VISION, IMAGE)
        before = target.truth()
        (folder / "cgroup.procs").write_text(str(target.pid))
        reader = PressureReader(SystemClock())
        reader.look([target.pid])
        target.do("spin", "-", 60_000)
        target.do("stage", "-", DECODE, IMAGE)
        after = target.truth()
        (load,) = reader.look([target.pid]).cgroups.values()
        row = target.stage(VISION)
        throttled_ns = int(
            dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())["throttled_time"]
        )
    finally:
        target.close()
    assert throttled_ns > 20_000_000
    assert load.throttled_ratio > 0 and load.throttled_cpus > 0
    assert row is not None
    assert row["preempted_wait_ns"][0] > throttled_ns * 0.8
    assert after.run_delay_ns - before.run_delay_ns >= throttled_ns * 0.8


def test_reclaim_by_a_cgroups_limit_is_timed(
    cgroup: Callable[[str, str, str], Path], watch: Watch, program: Path, tmp_path: Path
) -> None:
    folder = cgroup("memory", "memory.limit_in_bytes", str(16 << 20))
    large = tmp_path / "large"
    with large.open("wb") as file:
        for _ in range(48):
            file.write(os.urandom(1 << 20))
    os.sync()
    target = Target(program, watch)
    try:
        target.do("stage", "-", PREPROCESS, IMAGE)
        (folder / "cgroup.procs").write_text(str(target.pid))
        target.do("touch", "-", 8)
        shutil.copyfile(large, tmp_path / "other")
        os.posix_fadvise(fd := os.open(large, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        target.do("reread", large, 3)
        row = target.stage(PREPROCESS)
        (load,) = PressureReader(SystemClock()).look([target.pid]).cgroups.values()
    finally:
        target.close()
    assert row is not None
    assert row["reclaims"] > 0
    assert load.events["max"] > 0 and load.memory_max_bytes == 16 << 20
    assert 0 < row["reclaim_ns"] < 60_000_000_000
