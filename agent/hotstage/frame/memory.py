# SPDX-License-Identifier: Apache-2.0
"""Memory of GPUs → columns of processes, GPUs, stages and the host. What is unknown has no value."""

from __future__ import annotations

from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.memory_types import Memory, MemoryOfProcess
from hotstage.frame.served import Cells
from hotstage.probes.memory_sample import Basis

_ADDRESSES = {
    "host": "memory_pinned_bytes",
    "mapped": "memory_mapped_bytes",
    "reserved": "memory_reserved_bytes",
}


def fill_memory(memory: Memory, cells: Cells) -> None:
    """Cells of what there is; a GPU that NVML does not list gets none."""
    _fill_processes(memory, cells)
    gpus = {entity.gpu_uuid: entity for entity in cells if entity.kind is EntityKind.gpu}
    for gpu in memory.gpus:
        entity = gpus.get(gpu.gpu_uuid)
        if entity is None:
            continue
        cell = cells[entity]
        if gpu.live_bytes is not None:
            cell["memory_live_bytes"] = gpu.live_bytes
        if gpu.fragmentation.ratio is not None:
            cell["memory_fragmentation_ratio"] = gpu.fragmentation.ratio
        cell["memory_fragmentation_basis"] = float(Basis[gpu.fragmentation.basis.upper()])
        cell["memory_failed_fitting"] = gpu.failed_fitting
    for stage in memory.stages:
        if stage.stage == "none":
            continue
        cell = cells.setdefault(Entity(EntityKind.stage, stage=stage.stage, modality=stage.modality), {})
        cell["memory_live_bytes"], cell["memory_high_bytes"] = stage.live_bytes, stage.high_bytes
        if stage.oldest_age_seconds is not None:
            cell["memory_oldest_age_seconds"] = stage.oldest_age_seconds


def _fill_processes(memory: Memory, cells: Cells) -> None:
    by_pid: dict[int, list[MemoryOfProcess]] = {}
    for process in memory.processes:
        by_pid.setdefault(process.pid, []).append(process)
    for pid, own in by_pid.items():
        cell = cells.setdefault(Entity(EntityKind.process, pid=pid), {})
        live = [each.live_bytes for each in own]
        is_known = None not in live
        if is_known:
            cell["memory_live_bytes"] = sum(each for each in live if each is not None)
        for kind, column in _ADDRESSES.items():
            found = [
                each.live_bytes or 0 for place in own for each in place.kinds if each.kind == kind
            ]  # each of these says its size
            if found and is_known:
                cell[column] = sum(found)
        ages = [each.oldest_age_seconds for place in own for each in place.kinds if each.oldest_age_seconds]
        if ages:
            cell["memory_oldest_age_seconds"] = max(ages)
    if memory.processes:
        pinned = [cell["memory_pinned_bytes"] for cell in cells.values() if "memory_pinned_bytes" in cell]
        if pinned:
            cells[HOST]["memory_pinned_bytes"] = sum(pinned)
