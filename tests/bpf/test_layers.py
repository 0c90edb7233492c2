# SPDX-License-Identifier: Apache-2.0
"""Nested, pure driver, pure runtime: one count each. Communicators by rank and size. Sizes in memory."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.bpf.conftest import SOURCES, Probes, Workload, open_library

from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.spec import Layer
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.discovery.libraries import ParsedLibrary
from hotstage.probes.discovery.targets import plan
from hotstage.probes.loader import links
from hotstage.probes.maps.communicators import Communicator

ALLOC, LAUNCH, WAIT, COPY_2D, COPY_3D, BATCH = 16, 1, 64, 50, 54, 139
CUDA_LAUNCH, CUDA_MALLOC, CUDA_SYNC = 192, 200, 264
ALL_REDUCE, REDUCE, INIT_RANK, COMM_COUNT = 288, 293, 304, 411
PURE, REFUSED, REJECTED, TOO_MUCH, NESTED = 0x1001, 0x1002, 0x1003, 0x1004, 0x1005
FLOAT16, INT64 = 6, 4

KINDS = {"driver": "libcuda", "runtime": "libcudart", "nccl": "libnccl"}


def build_layers(out: Path) -> Path:
    """`liblayers_*.so` and the program that calls them. Unoptimised: nothing jumps."""
    gcc = ["gcc", "-O0", "-fcf-protection=none", "-Wall", "-Wextra", "-Werror", "-pthread"]
    for part in KINDS:
        needs = [] if part == "driver" else [out / "liblayers_driver.so"]
        source, built = SOURCES / f"layers_{part}.c", out / f"liblayers_{part}.so"
        subprocess.run([*gcc, "-shared", "-fPIC", "-o", built, source, *needs], check=True)
    libraries = [out / f"liblayers_{part}.so" for part in KINDS]
    program = [SOURCES / "layers.c", *libraries, f"-Wl,-rpath,{out}", "-o", out / "layers"]
    subprocess.run([*gcc, *program], check=True)
    return out


@pytest.fixture(scope="session")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_layers(tmp_path_factory.mktemp("layers"))


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same once more: files of which only the runtime is attached."""
    return build_layers(tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def layered(probes: Probes, layers: Path) -> Iterator[Probes]:
    """Everything attached."""
    with ExitStack() as stack:
        attach(probes, layers, stack, *KINDS)
        yield probes


@pytest.fixture
def target(layers: Path) -> Iterator[Workload]:
    workload = Workload(layers / "layers")
    yield workload
    workload.close()


def attach(probes: Probes, layers: Path, stack: ExitStack, *parts: str) -> None:
    for part in parts:
        library = open_library(layers / f"liblayers_{part}.so", KINDS[part], stack)
        points, _ = plan(ParsedLibrary(library, read_elf(library.fd), False), LIBRARIES)
        attachment = probes.loader.attach(library, points)
        assert points and not attachment.refused
        stack.callback(links.detach, attachment.links)


def made_by(probes: Probes, target: Workload) -> list[Communicator]:
    return [each for each in probes.maps.communicators.all() if each.pid == target.pid]


def places(probes: Probes, target: Workload) -> list[tuple[int | None, int | None]]:
    return [(each.rank, each.size) for each in made_by(probes, target)]


def counted(probes: Probes, target: Workload, call: int) -> tuple[int, int]:
    """(calls, errors) of a call; (0, 0) where it has no row."""
    _, stats = probes.rows(target.pid, call)
    return int(stats["count"].sum()), int(stats["errors"].sum())


def test_a_call_of_the_runtime_that_calls_the_driver_is_one_count(layered: Probes, target: Workload) -> None:
    target.do("runtime", 101, 4096, 0)
    target.do("launch", 103, 1, 5)
    target.do("sync", 107, 5, 0)
    assert counted(layered, target, ALLOC) == (101, 0)
    assert counted(layered, target, LAUNCH) == (103, 0)
    assert counted(layered, target, WAIT) == (107, 0)
    for call in (CUDA_MALLOC, CUDA_LAUNCH, CUDA_SYNC):
        assert counted(layered, target, call) == (0, 0)


def test_a_call_of_the_driver_is_one_count(layered: Probes, target: Workload) -> None:
    target.do("driver", 53, 4096, 0)
    assert counted(layered, target, ALLOC) == (53, 0)
    assert counted(layered, target, CUDA_MALLOC) == (0, 0)


def test_where_no_driver_is_seen_the_runtime_counts(probes: Probes, alone: Path) -> None:
    with ExitStack() as stack:
        attach(probes, alone, stack, "runtime")
        target = Workload(alone / "layers")
        stack.callback(target.close)
        target.do("runtime", 59, 4096, 0)
        target.do("runtime", 13, NESTED, 0)
        target.do("launch", 61, 1, 5)
        target.do("sync", 67, 5, 0)
        keys, stats = probes.rows(target.pid, CUDA_MALLOC)
        # Of two within each other the inner one counts.
        assert (int(stats["count"].sum()), int(stats["bytes"].sum())) == (59 + 13, (59 + 13) * 4096)
        assert set(keys["layer"]) == {Layer.RUNTIME}
        assert counted(probes, target, CUDA_LAUNCH) == (61, 0)
        assert counted(probes, target, CUDA_SYNC) == (67, 0)
        assert counted(probes, target, ALLOC) == (0, 0)
        assert not probes.maps.communicators.driver_is_seen(target.pid)


def test_an_error_that_never_reaches_the_driver_is_the_runtimes(layered: Probes, target: Workload) -> None:
    target.do("runtime", 7, REFUSED, 0)
    assert counted(layered, target, CUDA_MALLOC) == (7, 7)
    target.do("runtime", 11, REJECTED, 0)  # with the driver's help
    assert counted(layered, target, CUDA_MALLOC) == (18, 18)
    assert counted(layered, target, ALLOC) == (0, 0)


def test_an_error_of_the_driver_is_the_drivers(layered: Probes, target: Workload) -> None:
    target.do("runtime", 17, TOO_MUCH, 0)
    target.do("sync", 19, 77, 0)
    assert counted(layered, target, ALLOC) == (17, 17)
    assert counted(layered, target, WAIT) == (19, 19)
    assert counted(layered, target, CUDA_MALLOC) == counted(layered, target, CUDA_SYNC) == (0, 0)
    (thread,) = layered.threads(target.pid)
    assert thread["error_total"] == 17 + 19


def test_once_the_driver_was_seen_what_needs_none_is_no_count(layered: Probes, target: Workload) -> None:
    target.do("runtime", 1, 4096, 0)
    assert layered.maps.communicators.driver_is_seen(target.pid)
    target.do("runtime", 23, PURE, 0)
    target.do("sync", 29, 1, 0)
    assert counted(layered, target, CUDA_MALLOC) == counted(layered, target, CUDA_SYNC) == (0, 0)
    target.do("runtime", 3, REFUSED, 0)
    assert counted(layered, target, CUDA_MALLOC) == (3, 3)


def test_a_wait_within_a_wait_is_waited_once(layered: Probes, target: Workload) -> None:
    target.do("sync", 1000, 5, 0)
    (thread,) = layered.threads(target.pid)
    _, stats = layered.rows(target.pid, WAIT)
    inner = int(stats["total_ns"].sum())
    assert inner <= thread["wait_ns"][1]  # the outer call's, which holds it
    target.do("init", 1, 8, 5)
    assert layered.threads(target.pid)[0]["wait_ns"][3] > 0  # what NCCL allocates: no wait is around it


def test_a_collective_is_counted_with_its_bytes_and_for_its_communicator(
    layered: Probes, target: Workload
) -> None:
    target.do("init", 1, 8, 5)
    target.do("allreduce", 31, 1000, FLOAT16)
    target.do("reduce", 7, 10, INT64)
    target.do("busy", 2, 1, FLOAT16)
    keys, stats = layered.rows(target.pid, ALL_REDUCE)
    assert (int(stats["count"].sum()), int(stats["errors"].sum())) == (33, 0)
    assert int(stats["bytes"].sum()) == 31 * 2000 + 2 * 2
    assert set(keys["layer"]) == {Layer.LIBRARY}
    assert counted(layered, target, WAIT) == (33, 0)  # the driver's calls in it are the driver's
    (made,) = made_by(layered, target)
    assert (made.rank, made.size) == (5, 8)
    assert (made.calls, made.size_bytes) == (31 + 7 + 2, 31 * 2000 + 7 * 80 + 4)
    assert (made.last_call, made.last_tid) == (ALL_REDUCE, target.pid)
    assert made.last_ns and made.first_ns < made.last_ns


def test_a_collective_that_fails_is_an_error_and_of_no_communicator(
    layered: Probes, target: Workload
) -> None:
    target.do("bad", 5, 10, FLOAT16)
    assert counted(layered, target, ALL_REDUCE) == (5, 5)
    assert not made_by(layered, target)


def test_communicators_of_one_process_know_their_ranks(layered: Probes, target: Workload) -> None:
    target.do("all", 1, 4, 0)
    target.do("split", 1, 3, 0)  # rank 3's; which ranks have its colour only NCCL knows
    four = [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert places(layered, target) == [*four, (None, None)]
    assert {each.last_ns for each in made_by(layered, target)} == {None}
    target.do("ask", 1, 4, 0)
    target.do("ask_device", 1, 4, 0)
    target.do("ask_none", 1, 0, 0)
    assert places(layered, target) == [*four, (1, 2)]
    assert [each.device for each in made_by(layered, target)] == [None] * 4 + [2]
    assert counted(layered, target, COMM_COUNT) == (2, 1)
    target.do("destroy", 1, 1, 0)
    assert len(made_by(layered, target)) == 4
    layered.maps.communicators.forget([target.pid])
    assert not made_by(layered, target)


def test_what_is_left_of_a_communicator_and_what_joins_it_have_their_ranks(
    layered: Probes, target: Workload
) -> None:
    target.do("scalable", 1, 8, 5)
    target.do("shrink", 1, 0, 1)  # without 6, 1, 3
    target.do("grow", 1, 1, 12)
    assert places(layered, target) == [(5, 8), (3, 5), (3, 12)]
    target.do("scalable", 1, 40, 39)
    target.do("shrink_far", 1, 0, 1)  # of more than are read
    target.do("join", 1, 16, 13)
    assert places(layered, target)[3:] == [(39, 40), (None, 20), (13, 16)]


def test_what_is_made_in_a_group_is_known_at_its_end(layered: Probes, target: Workload) -> None:
    target.do("group", 2, 0, 0)
    target.do("init", 2, 8, 5)  # stand at 0 and 1
    target.do("split", 1, 1, -1)
    target.do("group_end", 1, 0, 0)
    assert not made_by(layered, target)
    target.do("group_end", 1, 0, 0)
    assert places(layered, target) == [(5, 8), (5, 8)]
    target.do("group_end", 1, 0, 0)  # of none
    target.do("group", 1, 0, 0)
    target.do("all", 1, 4, 0)
    target.do("group_dropped", 1, 0, 0)
    assert len(made_by(layered, target)) == 2
    before = layered.losses().get("lost_pending_communicators", 0)
    target.do("group", 1, 0, 0)
    target.do("init", 20, 8, 5)
    target.do("group_end", 1, 0, 0)
    assert places(layered, target)[2:] == [(5, 8)] * 16
    assert layered.losses()["lost_pending_communicators"] - before == 4


def test_sizes_are_read_where_structures_and_arrays_have_them(layered: Probes, target: Workload) -> None:
    target.do("copy2d", 3, 640, 480)
    target.do("copy3d", 5, 64, 32)
    target.do("batch", 7, 1000, 9)
    assert int(layered.rows(target.pid, COPY_2D)[1]["bytes"].sum()) == 3 * 640 * 480
    assert int(layered.rows(target.pid, COPY_3D)[1]["bytes"].sum()) == 5 * 64 * 32 * 3
    assert int(layered.rows(target.pid, BATCH)[1]["bytes"].sum()) == 7 * 9000
    before = layered.losses().get("lost_batch_sizes", 0)
    target.do("batch", 1, 1000, 100)
    assert int(layered.rows(target.pid, BATCH)[1]["bytes"].sum()) == 7 * 9000 + 64_000
    assert layered.losses()["lost_batch_sizes"] - before == 1
