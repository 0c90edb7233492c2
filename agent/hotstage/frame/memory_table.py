# SPDX-License-Identifier: Apache-2.0
"""A sample of the ledger and what NVML says → memory by GPU, process and stage. Remembers failures only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from hotstage.devices.samples import DeviceSample
from hotstage.frame.fragmentation import (
    DeviceMemory,
    FailedAllocations,
    best,
    is_false_oom_risk,
    of_ledger,
)
from hotstage.frame.memory_types import (
    AgeSlot,
    FragmentationFigure,
    Memory,
    MemoryKind,
    MemoryOfGpu,
    MemoryOfProcess,
    MemoryOfStage,
)
from hotstage.probes.catalogue.spec import Memory as Kind
from hotstage.probes.maps.layout import NO_DEVICE
from hotstage.probes.memory_sample import (
    AGE_EDGES_SECONDS,
    FOR_GPUS,
    MOST_BYTES,
    SIZELESS,
    Estimate,
    MemorySample,
)
from hotstage.stages.labels import StageLabels
from hotstage.stages.stage import modality_name

Place = tuple[int, int]
"""(pid, device ordinal)."""

_KIND_NAMES = {kind.value: kind.name.lower() for kind in Kind}
_MAY_FAIL_FOR_ROOM = frozenset((Kind.DEVICE, Kind.PITCHED, Kind.POOL, Kind.PHYSICAL))


class MemoryTable:
    """`make` once a second. Not thread-safe."""

    def __init__(self) -> None:
        self._failures: dict[str, FailedAllocations] = {}
        self._failed: dict[tuple[int, int, int], int] = {}

    def make(self, sample: MemorySample, devices: DeviceSample | None, labels: StageLabels) -> Memory:
        """`devices` that are not fresh say nothing. `labels`: of the stages that processes made up."""
        by_uuid = _device_memory(devices)
        gpu_of = _Gpus(sample.uuids, by_uuid)
        by_place = _rows_by_place(sample.sums)
        stages = _stages_by_place(sample, labels)
        self._note_failures(sample, gpu_of, by_uuid)
        processes = [
            _process(sample, place, rows, stages.get(place, []), gpu_of(place))
            for place, rows in sorted(by_place.items())
        ]
        return Memory(
            gpus=self._gpus(sample, processes, by_uuid, gpu_of),
            processes=processes,
            stages=_of_host(stages.values()),
            ended_processes=sample.ended_processes,
            ended_bytes=sample.ended_bytes,
        )

    def _note_failures(
        self, sample: MemorySample, gpu_of: _Gpus, by_uuid: Mapping[str, DeviceMemory]
    ) -> None:
        """What failed since the sample before, against what is free now."""
        failed: dict[tuple[int, int, int], int] = {}
        for row in sample.sums[sample.sums["failed_count"] > 0]:
            key = int(row["tgid"]), int(row["kind"]), int(row["device"])
            failed[key] = int(row["failed_count"])
            uuid = gpu_of((key[0], key[2]))
            has_failed = key[1] in _MAY_FAIL_FOR_ROOM and failed[key] > self._failed.get(key, 0)
            if has_failed and uuid is not None and uuid in by_uuid:
                found = self._failures.setdefault(uuid, FailedAllocations())
                found.add(int(row["failed_ns"]), int(row["failed_bytes"]), by_uuid[uuid])
        self._failed = failed

    def _gpus(
        self,
        sample: MemorySample,
        processes: Iterable[MemoryOfProcess],
        by_uuid: Mapping[str, DeviceMemory],
        gpu_of: _Gpus,
    ) -> list[MemoryOfGpu]:
        of_gpu: dict[str, list[MemoryOfProcess]] = {uuid: [] for uuid in by_uuid}
        for process in processes:
            if process.gpu_uuid is not None:
                of_gpu.setdefault(process.gpu_uuid, []).append(process)
        pages = _pages_by_gpu(sample, gpu_of)
        return [
            self._gpu(sample, uuid, own, by_uuid.get(uuid), pages.get(uuid, (0, 0)))
            for uuid, own in sorted(of_gpu.items())
        ]

    def _gpu(
        self,
        sample: MemorySample,
        uuid: str,
        own: list[MemoryOfProcess],
        device: DeviceMemory | None,
        pages: tuple[int, int],
    ) -> MemoryOfGpu:
        failures = self._failures.get(uuid)
        kinds = [kind for each in own for kind in each.kinds if kind.kind in _FOR_GPU_NAMES]
        known = sum(kind.live_bytes or 0 for kind in kinds)
        places = [(each.pid, each.device) for each in own if each.device is not None]
        is_complete = bool(own) and all(each.live_bytes is not None for each in own)
        found = [source.get(place) for source in (sample.exact, sample.pools) for place in places]
        ledger = of_ledger(*pages, known, device) if device is not None and is_complete else None
        inferred = failures.inferred(sample.at_ns, device) if failures else None
        return MemoryOfGpu(
            gpu_uuid=uuid,
            total_bytes=None if device is None else device.total,
            used_bytes=None if device is None else device.used,
            free_bytes=None if device is None else device.free,
            live_bytes=known if is_complete else None,
            failed_fitting=failures.count(sample.at_ns) if failures else 0,
            fragmentation=_figure(best([*found, ledger, inferred], device)),
        )


_COUNTER_END = (1 << 64) - 1
"""Where a sum of counters stays: beyond, it is no number that JSON's readers take."""
_FOR_GPU_NAMES = frozenset(kind.name.lower() for kind in FOR_GPUS)


class _Gpus:
    """(pid, ordinal) → UUID: as the driver told the process, or the only GPU that there is."""

    def __init__(self, uuids: Mapping[Place, str], by_uuid: Mapping[str, DeviceMemory]) -> None:
        self._uuids = uuids
        self._only = next(iter(by_uuid)) if len(by_uuid) == 1 else None

    def __call__(self, place: Place) -> str | None:
        if place[1] == NO_DEVICE:
            return None
        return self._uuids.get(place, self._only)


def _device_memory(devices: DeviceSample | None) -> dict[str, DeviceMemory]:
    if devices is None or not devices.is_fresh:
        return {}
    rows = devices.rows[np.isfinite(devices.rows["memory_total_bytes"].astype(np.float64))]
    return {
        row["uuid"].decode(): DeviceMemory(int(row["memory_total_bytes"]), int(row["memory_used_bytes"]))
        for row in rows
        if row["memory_total_bytes"] > 0 and np.isfinite(float(row["memory_used_bytes"]))
    }


def _rows_by_place(sums: NDArray[np.void]) -> dict[Place, list[np.void]]:
    """Rows by process and device; a process's own row (kind 0) is none of them."""
    found: dict[Place, list[np.void]] = {}
    for row in sums[sums["kind"] != Kind.NONE]:
        found.setdefault((int(row["tgid"]), int(row["device"])), []).append(row)
    return found


def _process(
    sample: MemorySample, place: Place, rows: list[np.void], stages: list[MemoryOfStage], uuid: str | None
) -> MemoryOfProcess:
    pid, device = place
    is_complete = pid in sample.from_start and not any(
        row["untracked_count"]
        or row["unmatched_frees"]
        or (row["unsized_count"] and int(row["kind"]) in FOR_GPUS)
        or is_made_up(row)
        for row in rows
    )
    live = sum(int(row["live_bytes"]) for row in rows if int(row["kind"]) in FOR_GPUS)
    figures = [sample.exact.get(place), sample.pools.get(place)]
    return MemoryOfProcess(
        pid=pid,
        name=sample.names.get(pid, ""),
        device=None if device == NO_DEVICE else device,
        gpu_uuid=uuid,
        is_complete=is_complete,
        live_bytes=live if is_complete else None,
        unmatched_frees=sum(int(row["unmatched_frees"]) for row in rows),
        kinds=[_kind(row, sample.at_ns) for row in sorted(rows, key=lambda row: int(row["kind"]))],
        stages=sorted(stages, key=lambda each: (-each.live_bytes, each.stage, each.modality)),
        ages=_ages(sample.ages.get(place)),
        fragmentation=_figure(best(figures, None)),
    )


def is_made_up(row: np.void) -> bool:
    """Whether it holds, or held, more than any GPU has: none of its bytes is a measurement, nor of sums that
    have come to their end since.
    """
    return bool(max(row["live_bytes"], row["high_bytes"]) > MOST_BYTES)


def _kind(row: np.void, at_ns: int) -> MemoryKind:
    has_sizes = int(row["kind"]) not in SIZELESS and not is_made_up(row)

    def known(name: str) -> int | None:
        return int(row[name]) if has_sizes else None

    return MemoryKind(
        kind=_KIND_NAMES.get(int(row["kind"]), "unknown"),
        live_bytes=None if row["unsized_count"] else known("live_bytes"),
        live_count=int(row["live_count"]),
        unsized_count=int(row["unsized_count"]),
        high_bytes=known("high_bytes"),
        allocated_bytes=known("allocated_bytes"),
        freed_bytes=known("freed_bytes"),
        implicitly_freed_bytes=known("implicit_bytes"),
        failed_count=int(row["failed_count"]),
        untracked_bytes=int(row["untracked_bytes"]),
        refilled_count=int(row["refilled_count"]),
        oldest_age_seconds=_age(row["oldest_ns"], at_ns),
        median_age_seconds=_age(row["median_ns"], at_ns),
    )


def _age(since_ns: int, at_ns: int) -> float | None:
    return max(0, at_ns - int(since_ns)) / 1e9 if since_ns else None


def _stages_by_place(sample: MemorySample, labels: StageLabels) -> dict[Place, list[MemoryOfStage]]:
    """Without stages that hold, or held, more than any GPU has: their process is incomplete."""
    found: dict[Place, list[MemoryOfStage]] = {}
    for row in sample.stages:
        if is_made_up(row):
            continue
        pid = int(row["tgid"])
        found.setdefault((pid, int(row["device"])), []).append(
            MemoryOfStage(
                stage=labels[labels.label_of(pid, int(row["stage"]))],
                modality=modality_name(int(row["modality"])),
                live_bytes=int(row["live_bytes"]),
                high_bytes=int(row["high_bytes"]),
                live_count=int(row["live_count"]),
                allocated_bytes=int(row["allocated_bytes"]),
                oldest_age_seconds=_age(row["oldest_ns"], sample.at_ns),
                median_age_seconds=_age(row["median_ns"], sample.at_ns),
            )
        )
    return found


def _of_host(places: Iterable[list[MemoryOfStage]]) -> list[MemoryOfStage]:
    """Stages of all processes together. A median of medians is none: it is told where one process has it."""
    groups: dict[tuple[str, str], list[MemoryOfStage]] = {}
    for rows in places:
        for row in rows:
            groups.setdefault((row.stage, row.modality), []).append(row)
    added = [
        MemoryOfStage(
            stage=stage,
            modality=modality,
            live_bytes=sum(row.live_bytes for row in rows),
            high_bytes=sum(row.high_bytes for row in rows),
            live_count=sum(row.live_count for row in rows),
            allocated_bytes=min(sum(row.allocated_bytes for row in rows), _COUNTER_END),
            oldest_age_seconds=max(_ages_of(rows), default=None),
            median_age_seconds=_median_of(rows),
        )
        for (stage, modality), rows in groups.items()
    ]
    return sorted(added, key=lambda each: (-each.live_bytes, each.stage, each.modality))


def _ages_of(rows: list[MemoryOfStage]) -> list[float]:
    return [row.oldest_age_seconds for row in rows if row.oldest_age_seconds is not None]


def _median_of(rows: list[MemoryOfStage]) -> float | None:
    medians = [row.median_age_seconds for row in rows if row.median_age_seconds is not None]
    return medians[0] if len(medians) == 1 else None


def _ages(table: NDArray[np.uint64] | None) -> list[AgeSlot]:
    if table is None:
        return []
    edges = (*AGE_EDGES_SECONDS, None)
    return [
        AgeSlot(edge, count, size)
        for edge, count, size in zip(edges, table[0].tolist(), table[1].tolist(), strict=True)
    ]


def _pages_by_gpu(sample: MemorySample, gpu_of: _Gpus) -> dict[str, tuple[int, int]]:
    """UUID → (bytes of live pointers, bytes of the pages that they lie in)."""
    found: dict[str, tuple[int, int]] = {}
    for row in sample.pages:
        uuid = gpu_of((int(row["tgid"]), int(row["device"])))
        if uuid is not None:
            live, pages = found.get(uuid, (0, 0))
            found[uuid] = live + int(row["live_bytes"]), pages + int(row["page_bytes"])
    return found


def _figure(found: Estimate) -> FragmentationFigure:
    return FragmentationFigure(
        basis=found.basis.name.lower(),  # type: ignore[arg-type]
        ratio=found.ratio,
        free_bytes=found.free_bytes,
        largest_free_bytes=found.largest_free_bytes,
        why=found.why or None,
        false_oom_risk=is_false_oom_risk(found),
    )
