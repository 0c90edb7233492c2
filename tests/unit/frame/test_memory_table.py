# SPDX-License-Identifier: Apache-2.0
"""The ledger's sample and NVML's figures become memory by GPU, process and stage, and columns."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from hotstage.devices.samples import DEVICE_DTYPE, DeviceSample, DevicesState
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.memory import fill_memory
from hotstage.frame.memory_table import MemoryTable
from hotstage.probes.catalogue.spec import Memory
from hotstage.probes.memory_sample import (
    MEMORY_ROW_DTYPE,
    PAGE_ROW_DTYPE,
    STAGE_ROW_DTYPE,
    Basis,
    Estimate,
    MemorySample,
)
from hotstage.stages.labels import StageLabels

NOW_NS = 100 * 10**9
GIB = 1 << 30
UUID = "GPU-1"


def rows_of(dtype, *rows):
    found = np.zeros(len(rows), dtype)
    for place, row in enumerate(rows):
        for name, value in row.items():
            found[name][place] = value
    return found


def a_sum(pid=7, kind=Memory.DEVICE, device=0, live=0, **others):
    return {
        "tgid": pid,
        "kind": kind,
        "device": device,
        "live_bytes": live,
        "allocated_bytes": live,
        **others,
    }


def a_sample(*sums, stages=(), pages=(), from_start=(7,), **others):
    return MemorySample(
        at_ns=NOW_NS,
        sums=rows_of(MEMORY_ROW_DTYPE, *sums),
        stages=rows_of(STAGE_ROW_DTYPE, *stages),
        pages=rows_of(PAGE_ROW_DTYPE, *pages),
        ages={},
        names={7: "server"},
        from_start=set(from_start),
        uuids={(7, 0): UUID, (8, 0): UUID},
        **others,
    )


@pytest.fixture
def devices():
    rows = np.zeros(1, DEVICE_DTYPE)
    rows["uuid"], rows["pci_bus_id"] = UUID.encode(), b"0000:01:00.0"
    rows["memory_total_bytes"], rows["memory_used_bytes"] = 80 * GIB, 60 * GIB
    return DeviceSample(NOW_NS, DevicesState.sampling, "", rows, is_fresh=True)


@pytest.fixture
def make(devices):
    table = MemoryTable()
    return lambda sample: table.make(sample, devices, StageLabels())


def test_kinds_for_gpus_add_up_and_addresses_do_not(make):
    memory = make(
        a_sample(
            a_sum(live=3),
            a_sum(kind=Memory.PHYSICAL, live=40),
            a_sum(kind=Memory.MAPPED, live=40),
            a_sum(kind=Memory.HOST, device=255, live=500),
        )
    )
    on_gpu, on_host = memory.processes
    assert (on_gpu.live_bytes, on_gpu.device, on_gpu.gpu_uuid, on_gpu.name) == (43, 0, UUID, "server")
    assert (on_host.live_bytes, on_host.device, on_host.gpu_uuid) == (0, None, None)
    assert memory.gpus[0].live_bytes == 43
    assert memory.gpus[0].free_bytes == 20 * GIB


@pytest.mark.parametrize(
    ("others", "from_start"),
    [({"untracked_count": 1, "untracked_bytes": 9}, (7,)), ({}, ())],
    ids=["no room in the ledger", "watched late"],
)
def test_what_is_not_complete_is_unknown(make, others, from_start):
    memory = make(a_sample(a_sum(live=3, **others), from_start=from_start))
    assert memory.processes[0].live_bytes is None
    assert not memory.processes[0].is_complete
    assert memory.processes[0].kinds[0].live_bytes == 3
    assert memory.gpus[0].live_bytes is None


def test_stages_of_several_processes_are_one(make):
    stage = {"stage": 8, "modality": 1, "live_bytes": 10, "high_bytes": 30, "live_count": 1}
    memory = make(
        a_sample(
            a_sum(live=10),
            a_sum(pid=8, live=10),
            stages=[
                {**stage, "tgid": 7, "oldest_ns": NOW_NS - 10**9, "median_ns": NOW_NS - 10**9},
                {**stage, "tgid": 8, "oldest_ns": NOW_NS - 3 * 10**9, "median_ns": NOW_NS},
            ],
        )
    )
    (row,) = memory.stages
    assert (row.stage, row.modality) == ("vision_encode", "image")
    assert (row.live_bytes, row.high_bytes, row.oldest_age_seconds) == (20, 60, 3.0)
    assert row.median_age_seconds is None


def test_an_allocation_that_failed_with_room_is_evidence_once(make):
    failed = {"failed_count": 1, "failed_bytes": 5 * GIB, "failed_ns": NOW_NS}
    for _ in range(2):
        gpu = make(a_sample(a_sum(live=1, **failed))).gpus[0]
        assert gpu.failed_fitting == 1
        assert gpu.fragmentation.basis == "inferred"
        assert gpu.fragmentation.ratio == 0.75


def test_pages_speak_for_a_gpu_whose_processes_are_known(make):
    sums = a_sum(live=40 * GIB)
    pages = [{"tgid": 7, "device": 0, "live_bytes": 40 * GIB, "page_bytes": 45 * GIB}]
    assert make(a_sample(sums, pages=pages)).gpus[0].fragmentation.ratio == 0.2
    assert make(a_sample(sums, pages=pages, from_start=())).gpus[0].fragmentation.basis == "unknown"


def test_who_knows_segments_knows_best(make):
    exact = {(7, 0): Estimate(Basis.TORCH, 0.4, 10 * GIB, 6 * GIB)}
    figure = make(a_sample(a_sum(live=1), exact=exact)).gpus[0].fragmentation
    assert (figure.basis, figure.ratio) == ("torch", 0.4)


def test_columns_are_there_where_something_is_known(make, devices):
    gpu = Entity(EntityKind.gpu, gpu_uuid=UUID, pci_bus_id="0000:01:00.0")
    cells = {HOST: {}, gpu: {}}
    fill_memory(make(a_sample(a_sum(live=3), a_sum(kind=Memory.HOST, device=255, live=500))), cells)
    process = Entity(EntityKind.process, pid=7)
    assert cells[gpu] == {
        "memory_live_bytes": 3,
        "memory_fragmentation_basis": 0.0,
        "memory_failed_fitting": 0,
    }
    assert cells[process] == {"memory_live_bytes": 3, "memory_pinned_bytes": 500}
    assert cells[HOST] == {"memory_pinned_bytes": 500}


def test_the_document_is_json_without_nan(make):
    body = msgspec.json.decode(msgspec.json.encode(make(a_sample(a_sum(live=3)))))
    assert body["processes"][0]["kinds"][0]["kind"] == "device"


def test_what_no_call_said_the_size_of_is_null_and_not_nothing(devices):
    sample = a_sample(
        a_sum(live=GIB),
        a_sum(kind=Memory.ARRAY, live=100, live_count=2, unsized_count=1),
        a_sum(kind=Memory.SHARED, live_count=1, unsized_count=1),
    )
    (process,) = MemoryTable().make(sample, devices, StageLabels()).processes
    assert {each.kind: each.live_bytes for each in process.kinds} == {
        "device": GIB,
        "array": None,
        "shared": None,
    }
    assert (process.is_complete, process.live_bytes) == (False, None)
    shared = a_sample(a_sum(live=GIB), a_sum(kind=Memory.SHARED, live_count=1, unsized_count=1))
    (process,) = MemoryTable().make(shared, devices, StageLabels()).processes
    assert process.live_bytes == GIB, "what is another process's is no part of it"


def test_what_no_gpu_has_is_unknown_and_part_of_no_sum(make):
    forged = {"live_bytes": (1 << 64) - 1, "high_bytes": (1 << 64) - 1, "allocated_bytes": (1 << 64) - 1}
    stages = [
        {"tgid": pid, "device": 0, "stage": stage, "modality": 1, **numbers}
        for pid, stage, numbers in (
            (7, 8, forged),
            (8, 8, {"live_bytes": 10, "high_bytes": 30, "allocated_bytes": (1 << 64) - 1}),
            (9, 8, {"live_bytes": 10, "high_bytes": 30, "allocated_bytes": 40}),
        )
    ]
    memory = make(
        a_sample(a_sum(live=(1 << 64) - 1), a_sum(pid=8, live=10), stages=stages, from_start=(7, 8, 9))
    )
    liar, other = memory.processes[:2]
    assert (liar.is_complete, liar.live_bytes, liar.kinds[0].live_bytes) == (False, None, None)
    assert other.live_bytes == 10
    assert memory.gpus[0].live_bytes is None
    (row,) = memory.stages
    assert (row.live_bytes, row.allocated_bytes) == (20, (1 << 64) - 1)
    assert msgspec.json.encode(memory)


def test_bytes_that_no_gpu_had_stay_unknown_once_they_are_freed(make):
    forged = a_sum(live=0, high_bytes=(1 << 64) - 1, allocated_bytes=(1 << 64) - 1, freed_bytes=(1 << 64) - 1)
    (process,) = make(a_sample(forged, from_start=(7,))).processes
    (kind,) = process.kinds
    assert (process.is_complete, process.live_bytes) == (False, None)
    assert (kind.live_bytes, kind.high_bytes, kind.allocated_bytes, kind.freed_bytes) == (None,) * 4
