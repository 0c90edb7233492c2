# SPDX-License-Identifier: Apache-2.0
"""Captured launches apart from those that run, and the kernels that graph launches replay."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.bpf.conftest import SOURCES, Probes, Workload, open_library

from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.discovery.libraries import ParsedLibrary
from hotstage.probes.discovery.targets import plan
from hotstage.probes.loader import links
from hotstage.probes.loader.base import MapSizes

LAUNCH, GRAPH_LAUNCH = 1, 4
STREAM, OTHER, PER_THREAD = 0x5000, 0x6000, 2
REFUSED, INVALID, ANOTHERS = 0x9000, 0x9010, 0x9020


@pytest.fixture(scope="session")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver and the program that calls it. Unoptimised: nothing jumps."""
    out = tmp_path_factory.mktemp("graphs")
    gcc = ["gcc", "-O0", "-fcf-protection=none", "-Wall", "-Wextra", "-Werror", "-pthread"]
    library = out / "libgraphs_driver.so"
    subprocess.run([*gcc, "-shared", "-fPIC", "-o", library, SOURCES / "graphs_driver.c"], check=True)
    program = [SOURCES / "graphs.c", library, f"-Wl,-rpath,{out}", "-o", out / "graphs"]
    subprocess.run([*gcc, *program], check=True)
    return out


def attach(probes: Probes, graphs: Path, stack: ExitStack) -> None:
    library = open_library(graphs / "libgraphs_driver.so", "libcuda", stack)
    points, _ = plan(ParsedLibrary(library, read_elf(library.fd), False), LIBRARIES)
    attachment = probes.loader.attach(library, points)
    assert len(points) == 9 and not attachment.refused
    stack.callback(links.detach, attachment.links)


@pytest.fixture(scope="module")
def attached(probes: Probes, graphs: Path) -> Iterator[Probes]:
    with ExitStack() as stack:
        attach(probes, graphs, stack)
        yield probes


@pytest.fixture
def target(graphs: Path) -> Iterator[Workload]:
    workload = Workload(graphs / "graphs")
    yield workload
    workload.close()


def work(probes: Probes, target: Workload, call: int) -> tuple[int, int, int]:
    """(captured, kernels replayed, launches of unknown graphs) of a call."""
    keys, rows = probes.maps.graphs.work()
    rows = rows[(keys["tgid"] == target.pid) & (keys["call"] == call)]
    return tuple(int(rows[name].sum()) for name in ("captured", "kernels", "unknown"))  # type: ignore[return-value]


def test_a_captured_launch_is_a_call_that_does_not_run(attached: Probes, target: Workload) -> None:
    target.do("launch", 3, STREAM, 0)
    target.do("begin", 1, STREAM, 0)
    target.do("launch", 7, STREAM, 0)
    target.do("launch", 2, OTHER, 0)
    target.do("end", 1, STREAM, 0)
    target.do("launch", 5, STREAM, 0)
    assert attached.count(target.pid, LAUNCH) == 17
    assert work(attached, target, LAUNCH) == (7, 0, 0)
    assert attached.threads(target.pid)["launch_total"].sum() == 17


def test_a_graph_launch_runs_what_was_captured(attached: Probes, target: Workload) -> None:
    target.do("begin", 1, STREAM, 0)
    target.do("launch", 7, STREAM, 0)
    target.do("end", 1, STREAM, 0)
    target.do("instantiate", 1, 0, 0)
    target.do("forget", 1, 0, 0)
    target.do("replay", 4, STREAM, 0)
    assert attached.count(target.pid, GRAPH_LAUNCH) == 4
    assert work(attached, target, GRAPH_LAUNCH) == (0, 28, 0)
    target.do("destroy", 1, 0, 0)
    target.do("replay", 2, STREAM, 0)
    assert work(attached, target, GRAPH_LAUNCH) == (0, 28, 2)


def test_of_a_graph_built_by_hand_nothing_is_known(attached: Probes, target: Workload) -> None:
    target.do("by-hand", 1, 0, 1)
    target.do("instantiate", 1, 0, 1)
    target.do("replay", 3, STREAM, 1)
    assert work(attached, target, GRAPH_LAUNCH) == (0, 0, 3)
    target.do("into", 1, STREAM, 1)
    target.do("launch", 7, STREAM, 0)
    target.do("end", 1, STREAM, 2)
    target.do("instantiate", 1, 0, 2)
    target.do("replay", 1, STREAM, 2)
    assert work(attached, target, GRAPH_LAUNCH) == (0, 0, 4)


def test_more_is_captured_into_a_graph(attached: Probes, target: Workload) -> None:
    target.do("begin", 1, STREAM, 0)
    target.do("launch", 7, STREAM, 0)
    target.do("end", 1, STREAM, 0)
    target.do("into", 1, STREAM, 0)
    target.do("launch", 4, STREAM, 0)
    target.do("end", 1, STREAM, 1)
    target.do("instantiate", 1, 0, 1)
    target.do("replay", 1, STREAM, 1)
    assert work(attached, target, GRAPH_LAUNCH) == (0, 11, 0)


def test_a_graph_in_a_capture_becomes_a_part_of_it(attached: Probes, target: Workload) -> None:
    for slot, launches in ((0, 7), (1, 2)):
        target.do("begin", 1, STREAM, 0)
        target.do("launch", launches, STREAM, 0)
        if slot:
            target.do("replay", 2, STREAM, 0)
        target.do("end", 1, STREAM, slot)
        target.do("instantiate", 1, 0, slot)
    target.do("replay", 1, STREAM, 1)
    assert work(attached, target, GRAPH_LAUNCH) == (2, 16, 0)
    target.do("begin", 1, STREAM, 0)
    target.do("by-hand", 1, 0, 3)
    target.do("instantiate", 1, 0, 3)
    target.do("replay", 1, STREAM, 3)
    target.do("end", 1, STREAM, 4)
    target.do("instantiate", 1, 0, 4)
    target.do("replay", 1, STREAM, 4)
    assert work(attached, target, GRAPH_LAUNCH) == (3, 16, 1)


def test_a_stream_is_captured_whoever_launches_and_so_are_those_that_join(
    attached: Probes, target: Workload
) -> None:
    target.do("join", 1, OTHER, 0)
    target.do("begin", 1, STREAM, 0)
    target.do("elsewhere", 3, STREAM, 0)
    target.do("elsewhere", 5, OTHER, 0)
    target.do("join", 1, OTHER, 0)
    target.do("launch", 4, OTHER, 0)
    target.do("end", 1, STREAM, 0)
    target.do("launch", 6, OTHER, 0)
    assert work(attached, target, LAUNCH) == (7, 0, 0)
    target.do("instantiate", 1, 0, 0)
    target.do("replay", 1, STREAM, 0)
    assert work(attached, target, GRAPH_LAUNCH) == (0, 7, 0)
    target.do("begin", 1, STREAM, 0)
    target.do("launch", 1, OTHER, 0)
    target.do("end", 1, STREAM, 0)
    assert work(attached, target, LAUNCH) == (7, 0, 0), "what had joined an ended capture"


def test_each_thread_has_its_own_default_stream(attached: Probes, target: Workload) -> None:
    target.do("begin", 1, PER_THREAD, 0)
    target.do("launch", 2, PER_THREAD, 0)
    target.do("elsewhere", 5, PER_THREAD, 0)
    target.do("end", 1, PER_THREAD, 0)
    assert work(attached, target, LAUNCH) == (2, 0, 0)


def test_a_capture_that_fails(attached: Probes, target: Workload) -> None:
    target.do("begin", 1, REFUSED, 0)
    target.do("launch", 2, REFUSED, 0)
    assert work(attached, target, LAUNCH) == (0, 0, 0)
    target.do("begin", 1, INVALID, 0)
    target.do("launch", 3, INVALID, 0)
    target.do("end", 1, INVALID, 0)
    target.do("launch", 3, INVALID, 0)
    assert work(attached, target, LAUNCH) == (3, 0, 0)
    target.do("begin", 1, ANOTHERS, 0)
    target.do("end", 1, ANOTHERS, 0)
    target.do("launch", 4, ANOTHERS, 0)
    assert work(attached, target, LAUNCH) == (7, 0, 0), "it goes on where another thread may not end it"


def test_nothing_of_a_process_stays(attached: Probes, graphs: Path) -> None:
    workload = Workload(graphs / "graphs")
    workload.do("begin", 1, STREAM, 0)
    workload.do("launch", 7, STREAM, 0)
    assert work(attached, workload, LAUNCH) == (7, 0, 0)
    workload.close()
    attached.maps.forget_processes([workload.pid])
    assert work(attached, workload, LAUNCH) == (0, 0, 0)


def test_a_process_has_a_share_of_graphs(
    start_small: Callable[[MapSizes], Probes], graphs: Path, target: Workload
) -> None:
    probes = start_small(MapSizes())
    share = probes.maps.graphs.capacity // 4
    with ExitStack() as stack:
        attach(probes, graphs, stack)
        target.do("many", share + 10, STREAM, 0)
        assert probes.losses()["lost_graphs"] >= 10
        other = Workload(graphs / "graphs")
        stack.callback(other.close)
        for verb, count in (("begin", 1), ("launch", 7), ("end", 1), ("instantiate", 1), ("replay", 2)):
            other.do(verb, count, STREAM, 0)
        assert work(probes, other, GRAPH_LAUNCH) == (0, 14, 0)
