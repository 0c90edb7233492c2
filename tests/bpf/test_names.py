# SPDX-License-Identifier: Apache-2.0
"""Launches by kernel against what was launched; stacks of slow and failing calls name who made them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.bpf.conftest import DEADLINE_SECONDS, Probes, Workload

from hotstage.probes.discovery.processes import ProcessTable
from hotstage.probes.kernel_table import GRAPH_NAME, ProcessKernels, kernel_table
from hotstage.probes.loader.base import MapSizes
from hotstage.probes.maps.layout import EventKind
from hotstage.probes.maps.levels import Level, LevelMaps
from hotstage.probes.stacks import frames_of

LAUNCH, LAUNCH_EX, GRAPH, EVENT_WAIT = 1, 2, 4, 65
FLASH = (
    "_ZN5flash24flash_fwd_splitkv_kernelI23Flash_fwd_kernel_traitsILi128ELi64ELi128ELi4ELb0ELb0EN7cutlass10"
    "bfloat16_tE19Flash_kernel_traitsILi128ELi64ELi128ELi4ES3_EELb0ELb0ELb0ELb0ELb1ELb0ELb0EEEvNS_16Flash_fwd_paramsE"
)
FLASH_SHOWN = "flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits, …>"


@pytest.fixture
def counted(probes: Probes) -> Iterator[Probes]:
    """Each launch is looked at."""
    probes.maps.names.prepare(launch_gap=1, takes_stacks=True)
    yield probes
    probes.maps.names.prepare(launch_gap=16, takes_stacks=True)


def kernels_of(probes: Probes, workload: Workload, limit: int = 20) -> ProcessKernels:
    launches = int(probes.threads(workload.pid)["launch_total"].sum())
    keys, states = probes.maps.names.kernels()
    mine = keys["tgid"] == workload.pid
    table = kernel_table(
        keys[mine],
        states[mine],
        {workload.pid: launches},
        {},
        launch_gap=probes.maps.names.launch_gap,
        limit=limit,
    )
    (process,) = table.processes
    assert (
        sum(row.launches for row in process.kernels) + process.other_launches + process.unnamed_launches
        == process.launches
        == launches
    )
    return process


def test_every_launch_by_kernel_is_what_was_launched(counted: Probes, workload: Workload) -> None:
    for name, launches, how in (
        (FLASH, 53, 0),
        (FLASH, 7, 1),
        (FLASH, 5, 2),
        ("gemm", 31, 0),
        ("softmax", 2, 1),
    ):
        workload.do("named", name, launches, 0, how)
    workload.call("graph", 3, 0)
    workload.launch(11)  # of a function that was never looked up
    process = kernels_of(counted, workload)
    assert {row.kernel: row.launches for row in process.kernels} == {
        FLASH_SHOWN: 65,
        "gemm": 31,
        GRAPH_NAME: 3,
        "softmax": 2,
    }
    assert (process.other_launches, process.unnamed_launches) == (0, 11)
    assert process.kernels[0].full_name == FLASH and process.kernels[0].error_ratio == 0


def test_the_top_and_the_rest_add_up(counted: Probes, workload: Workload) -> None:
    for at in range(9):
        workload.do("named", f"kernel_{at}", 10 + at, 0, 0)
    process = kernels_of(counted, workload, limit=3)
    assert [(row.kernel, row.launches) for row in process.kernels] == [
        ("kernel_8", 18),
        ("kernel_7", 17),
        ("kernel_6", 16),
    ]
    assert (process.other_kernels, process.other_launches) == (6, sum(range(10, 16)))


def test_samples_meet_every_kernel_of_a_step_that_repeats_itself(probes: Probes, workload: Workload) -> None:
    workload.do("cycle", "-", 32_000, 16)  # as many as the mean gap: a fixed one would meet one of them only
    process = kernels_of(probes, workload)
    assert 1700 <= process.samples <= 2300, "one in 16"
    assert {row.kernel for row in process.kernels} == {f"layer_{at}" for at in range(16)}
    # 2,000 launches each; a standard error is some 9 % of it
    assert all(abs(row.launches - 2000) < 6 * row.error_ratio * 2000 for row in process.kernels)


def test_a_flood_of_names_is_bounded_and_counted(
    start_small: Callable[[MapSizes], Probes], workload: Workload
) -> None:
    probes = start_small(MapSizes(by_name={"kernels": 1024}))
    probes.maps.names.prepare(launch_gap=1, takes_stacks=False)
    workload.do("flood", "-", 10_000, 0, 0)
    keys, _ = probes.maps.names.kernels()
    assert np.count_nonzero(keys["tgid"] == workload.pid) == 1024 // 4 + 1  # and the rest's
    process = kernels_of(probes, workload, limit=1000)
    assert (process.launches, len(process.kernels), process.unnamed_launches) == (10_000, 256, 10_000 - 256)
    assert probes.losses()["lost_functions"] >= 10_000 - 256
    probes.maps.names.forget([workload.pid])
    assert workload.pid not in probes.maps.names.kernels()[0]["tgid"]


@pytest.mark.parametrize("name", ["_Z" + "9" * 200, "_ZN" + "I" * 400, "\x1b[2J", "k" * 500])
def test_a_hostile_name_is_counted_and_shown_clean(counted: Probes, workload: Workload, name: str) -> None:
    workload.do("named", name, 13, 0, 0)
    (row,) = kernels_of(counted, workload).kernels
    assert row.launches == 13 and row.kernel.isprintable() and len(row.kernel) <= 120


def stacks_of(probes: Probes, workload: Workload) -> np.ndarray:
    rows = probes.maps.names.drain_stacks()
    return rows[rows["tgid"] == workload.pid]


def caller_of(workload: Workload, row: np.ndarray) -> str:
    frames = frames_of(ProcessTable(Path("/proc")), workload.pid, row["frames"][:1].tolist())
    (frame,) = frames.values()
    assert frame.library is not None and frame.library.endswith("/workload") and frame.build_id
    return f"{frame.symbol}+{frame.symbol_offset:#x}"


def test_the_stack_of_a_failing_call_names_who_made_it(probes: Probes, workload: Workload) -> None:
    probes.maps.names.drain_stacks()  # of calls that failed before
    workload.call("waited_event", 3, 0)
    rows = stacks_of(probes, workload)
    assert rows["kind"].tolist() == [EventKind.CALL_ERROR] * 3 and rows["result"].tolist() == [1] * 3
    assert set(rows["call"].tolist()) == {EVENT_WAIT} and rows["frame_count"].min() >= 1
    assert all(caller_of(workload, row).startswith("wait_for_event+") for row in rows)


def test_the_stack_of_a_slow_call_names_who_made_it(probes: Probes, workload: Workload) -> None:
    probes.maps.set_limits(slow_call_ns=1, event_gap_ns=0)
    try:
        workload.call("waited_event", 1, 7)
    finally:
        probes.maps.set_limits(slow_call_ns=1_000_000_000, event_gap_ns=0)
    (row,) = stacks_of(probes, workload)
    assert row["kind"] == EventKind.CALL_SLOW and row["duration_ns"] > 0
    assert caller_of(workload, row).startswith("wait_for_event+")


def test_no_stack_is_taken_of_a_process_that_is_stepped_down(probes: Probes, workload: Workload) -> None:
    names = ("process_levels", "level_generation", "probe_hits")
    levels = LevelMaps({name: probes.loader.map_fd(name) for name in names})
    levels.set(workload.pid, Level.no_stacks)
    workload.call("waited_event", 2, 0)
    assert not len(stacks_of(probes, workload))
    levels.set(workload.pid, Level.full)
    workload.call("waited_event", 2, 0)
    assert len(stacks_of(probes, workload)) == 2


def test_stacks_that_find_no_room_are_counted(
    start_small: Callable[[MapSizes], Probes], workload: Workload
) -> None:
    probes = start_small(MapSizes(by_name={"call_stacks": 4096}))
    deadline = time.monotonic() + DEADLINE_SECONDS
    workload.call("waited_event", 200, 0)
    kept = len(stacks_of(probes, workload))
    assert 0 < kept < 200 and probes.losses()["lost_stacks"] == 200 - kept
    assert probes.count(workload.pid, EVENT_WAIT) == 200 and time.monotonic() < deadline
