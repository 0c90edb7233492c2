# SPDX-License-Identifier: Apache-2.0
"""Real programs on a small library with libcuda's names: compiled here, attached once for each rung.

Every test looks only at the rows of processes that it started itself, so they can share one attachment.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.bpf.targets import Target

from hotstage.probes.catalogue import CUDA_DRIVER, LIBRARIES, MARKS
from hotstage.probes.catalogue.placement import CODE_BYTES, place
from hotstage.probes.catalogue.spec import call_spec_table
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.loader import links
from hotstage.probes.loader.base import AttachPoint, Link, Loader, MapSizes, OpenLibrary, Rung
from hotstage.probes.loader.bcc import BccLoader
from hotstage.probes.loader.libbpf import LibbpfLoader
from hotstage.probes.loader.programs import DROP_PENDING, TAKE_OUT
from hotstage.probes.maps.kernel import KernelMaps

REPOSITORY = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "target"
PREBUILT = Path(os.environ["HOTSTAGE_TEST_TARGETS"]) if "HOTSTAGE_TEST_TARGETS" in os.environ else None
"""Objects and targets are there already, where no compiler is: see tests/kernels."""
DEADLINE_SECONDS = 20.0


ON_EVERY_WAY = ("test_counts", "test_in_flight", "test_requests", "test_layers", "test_ledger")
"""Modules that `make test` runs by every compiler and on every rung. The others have rung P and bcc in `make
long` alone: what differs there is how programs are loaded and attached, and these show that.
"""
BY_BOTH_COMPILERS = ("test_hostile_calls",)
"""Modules that `make test` runs on rung S and by bcc alone: what rung M does otherwise, bcc shows, too."""


LOAD_NOTHING = ("test_build", "test_layout")
"""Modules that compile or read the objects only; tests/conftest.py runs them beside the others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        if item.path.stem not in LOAD_NOTHING:
            item.add_marker(pytest.mark.kernel)
        is_other_way = "[bcc, rung M" in item.name or "[libbpf, rung P" in item.name
        if item.path.stem in BY_BOTH_COMPILERS:
            is_other_way = "[libbpf, rung P" in item.name or "[libbpf, rung M" in item.name
        if is_other_way and item.path.stem not in ON_EVERY_WAY:
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def objects() -> Path:
    if PREBUILT is None:
        subprocess.run(["make", "-C", REPOSITORY / "bpf"], check=True, capture_output=True)
    return REPOSITORY / "agent/hotstage/probes/objects"


@dataclass(frozen=True)
class Build:
    cuda: Path
    marks: Path
    workload: Path


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return build_targets(PREBUILT or tmp_path_factory.mktemp("target"))


def build_targets(out: Path) -> Build:
    """What is already in `out` is taken as it is."""
    # Not by the real names: an agent that runs on this host meanwhile would attach to them as well.
    cuda, marks, workload = out / "libtarget_cuda.so", out / "libtarget_marks.so", out / "workload"
    for command in (
        [
            "-shared",
            "-fPIC",
            f"-Wl,-soname,{cuda.name}",
            "-o",
            cuda,
            SOURCES / "libcuda_entries.S",
            SOURCES / "libcuda_bodies.c",
        ],
        ["-shared", f"-Wl,-soname,{marks.name}", "-o", marks, SOURCES / "marks_entries.S"],
        ["-o", workload, SOURCES / "workload.c", cuda, marks, "-Wl,-rpath,$ORIGIN"],
    ):
        if not Path(command[command.index("-o") + 1]).exists():
            subprocess.run(["gcc", "-O2", "-Wall", "-pthread", *command], check=True)
    return Build(cuda, marks, workload)


def wait_for_line(process: subprocess.Popen[bytes], what: str) -> bytes:
    """Its next line, empty at its end."""
    assert process.stdout
    ready, _, _ = select.select([process.stdout], [], [], DEADLINE_SECONDS)
    assert ready, f"the target did not answer within {DEADLINE_SECONDS} s: {what}"
    return process.stdout.readline()


class Workload:
    """One target process: `do` returns when the calls of a command have been made."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.pid = self.process.pid
        self.wait("its start")

    def say(self, *words: object) -> None:
        assert self.process.stdin
        padded = [*words, "-"] if len(words) == 1 else list(words)
        self.process.stdin.write(" ".join(str(word) for word in padded).encode() + b"\n")

    def wait(self, what: str) -> None:
        assert wait_for_line(self.process, what) == b"ok\n", f"the target ended: {what}"

    def do(self, *words: object) -> None:
        self.say(*words)
        self.wait(str(words))

    def launch(self, count: int, stream: int = 0) -> None:
        self.do("launch", "-", count, stream)

    def call(self, name: str, count: int, argument: int = 0) -> None:
        self.do("call", name, count, argument)

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(DEADLINE_SECONDS)


def open_library(path: Path, kind: str, stack: ExitStack) -> OpenLibrary:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    stack.callback(os.close, fd)
    status = os.fstat(fd)
    return OpenLibrary(fd, str(path), status.st_dev, status.st_ino, status.st_size, None, kind)


def points_of(library: OpenLibrary) -> list[AttachPoint]:
    spec = CUDA_DRIVER if library.kind == "libcuda" else MARKS
    functions, points = read_elf(library.fd).functions, []
    for symbol, call in spec.by_symbol().items():
        if symbol in functions:
            start = functions[symbol].offset
            placed = place(os.pread(library.fd, CODE_BYTES, start), allow_rule=spec.has_placement_rule)
            offset = start + placed.skip
            points.append(AttachPoint(call.call_id, symbol, offset, call.kind, placed.is_emulated, start))
    return points


@dataclass
class Probes:
    """Programs loaded and attached to the target; what the tests read."""

    loader: Loader
    rung: Rung
    maps: KernelMaps
    attached: list[Link]
    cuda: OpenLibrary

    def count(self, pid: int, call_id: int, **where: int) -> int:
        return int(self.rows(pid, call_id, **where)[1]["count"].sum())

    def rows(self, pid: int, call_id: int, **where: int) -> tuple[np.ndarray, np.ndarray]:
        sample = self.maps.read_slow(0)
        chosen = (sample.keys["tgid"] == pid) & (sample.keys["call"] == call_id)
        for name, value in where.items():
            chosen &= sample.keys[name] == value
        return sample.keys[chosen], sample.stats[chosen]

    def threads(self, pid: int) -> np.ndarray:
        rows = self.maps.threads()
        return rows[rows["tgid"] == pid]

    def requests(self, pid: int) -> np.ndarray:
        rows = self.maps.requests()
        return rows[rows["tgid"] == pid]

    def losses(self) -> dict[str, int]:
        return {name: count for name, count in self.maps.losses().items() if count}


def start_probes(
    build: Build, rung: Rung, stack: ExitStack, sizes: MapSizes | None = None, compiler: str = "libbpf"
) -> Probes:
    loader: Loader = BccLoader() if compiler == "bcc" else LibbpfLoader()
    stack.callback(loader.close)
    loaded = loader.load(sizes or MapSizes(), rung)
    maps = KernelMaps(loaded.maps, loaded.programs.get(TAKE_OUT), loaded.programs[DROP_PENDING])
    stack.callback(maps.close)
    maps.prepare(call_spec_table(LIBRARIES), slow_call_ns=1_000_000_000, event_gap_ns=0)
    cuda, marks = open_library(build.cuda, "libcuda", stack), open_library(build.marks, "marks", stack)
    attached: list[Link] = []
    stack.callback(links.detach, attached)
    for library in (cuda, marks):
        attachment = loader.attach(library, points_of(library))
        assert not attachment.refused
        attached += attachment.links
    return Probes(loader, rung, maps, attached, cuda)


def ways() -> list[tuple[str, Rung]]:
    """Compilers and rungs; a machine that has not all of them says which (tests/kernels)."""
    if "HOTSTAGE_TEST_RUNGS" in os.environ:
        return [("libbpf", Rung(name)) for name in os.environ["HOTSTAGE_TEST_RUNGS"].split(",")]
    return [("libbpf", rung) for rung in Rung] + [("bcc", Rung.MULTI)]


WAYS = ways()


@pytest.fixture(scope="session", params=WAYS, ids=lambda way: f"{way[0]}, rung {way[1]}")
def probes(request: pytest.FixtureRequest, build: Build, objects: Path) -> Iterator[Probes]:
    compiler, rung = request.param
    with ExitStack() as stack:
        yield start_probes(build, rung, stack, compiler=compiler)


@pytest.fixture
def start_small(build: Build, objects: Path) -> Iterator[Callable[[MapSizes], Probes]]:
    """Probes of one's own with maps that are too small, on the best rung."""
    with ExitStack() as stack:
        yield lambda sizes: start_probes(build, Rung.SESSION, stack, sizes)


@pytest.fixture(scope="session")
def memory(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """`build` with a library that keeps the truth about memory in place of libcuda's."""
    from tests.bpf.memory_target import build_memory

    return build_memory(build, tmp_path_factory.mktemp("memory"))


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: f"{way[0]}, rung {way[1]}")
def memory_probes(request: pytest.FixtureRequest, memory: Build, objects: Path) -> Iterator[Probes]:
    """Programs of the module's own on that library: what others allocate is not in their ledger."""
    compiler, rung = request.param
    with ExitStack() as stack:
        yield start_probes(memory, rung, stack, compiler=compiler)


@pytest.fixture
def workload(build: Build) -> Iterator[Workload]:
    target = Workload(build.workload)
    yield target
    target.close()


@pytest.fixture(scope="session")
def request_server(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`target/requests.c`, for `start`."""
    from tests.bpf.request_server import build_server

    return build_server(build, PREBUILT or tmp_path_factory.mktemp("requests"))


@pytest.fixture
def start(request_server: Path) -> Iterator[Callable[[Probes], Workload]]:
    """Starts servers of `target/requests.c`."""
    from tests.bpf.request_server import server_starter

    with ExitStack() as stack:
        yield server_starter(request_server, stack)


@pytest.fixture
def start_workload(build: Build) -> Iterator[Callable[[], Workload]]:
    started: list[Workload] = []

    def start() -> Workload:
        started.append(Workload(build.workload))
        return started[-1]

    yield start
    for target in started:
        target.close()


@pytest.fixture
def start_target() -> Iterator[Callable[..., Target]]:
    """Starts processes that open libraries; the words are a command that such a process replaces."""
    targets: list[Target] = []

    def start(*prefix: str) -> Target:
        targets.append(Target(prefix))
        return targets[-1]

    yield start
    for target in targets:
        target.end()
