# SPDX-License-Identifier: Apache-2.0
"""Memory by GPU, process and stage → children of its metrics. What is unknown has none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from hotstage.frame.memory_types import Memory
from hotstage.sinks import memory_metrics as metrics
from hotstage.sinks.metric import Metric

_Children = list[tuple[tuple[str, ...], float]]


def memory_children(memory: Memory) -> dict[Metric, _Children]:
    """Largest first, so that a cap leaves out the least."""
    stages = [((each.stage, each.modality), each) for each in memory.stages]
    live, oldest, pinned = _of_processes(memory)
    return {
        metrics.LIVE: sorted(live.items(), key=lambda child: -child[1]),
        metrics.PINNED: [] if pinned is None else [((), pinned)],
        metrics.STAGE_LIVE: [(labels, float(each.live_bytes)) for labels, each in stages],
        metrics.STAGE_HIGH: [(labels, float(each.high_bytes)) for labels, each in stages],
        metrics.OLDEST: [((uuid,), age) for uuid, age in oldest.items()],
        metrics.FRAGMENTATION: [
            ((gpu.gpu_uuid, gpu.fragmentation.basis), gpu.fragmentation.ratio)
            for gpu in memory.gpus
            if gpu.fragmentation.ratio is not None
        ],
        metrics.FAILED_FITTING: [((gpu.gpu_uuid,), float(gpu.failed_fitting)) for gpu in memory.gpus],
        metrics.ENDED: [((), float(memory.ended_bytes))],
    }


_OUTCOMES = {
    "told": ("told",),
    "held_back": ("held_back",),
    "lost": ("lost",),
    "fits": ("few_tokens", "not_fragmented", "has_room"),
    "stale": ("stale",),
    "unknown": ("no_inputs", "unknown"),
}


def conflict_children(outcomes: Mapping[str, int]) -> dict[Metric, _Children]:
    """Large allocations by what became of them; none where nothing was judged yet."""
    if not any(outcomes.values()):
        return {}
    return {
        metrics.CONFLICTS: [
            ((name,), float(sum(outcomes.get(each, 0) for each in parts)))
            for name, parts in _OUTCOMES.items()
        ]
    }


def _of_processes(memory: Memory) -> tuple[dict[tuple[str, ...], float], dict[str, float], float | None]:
    """((GPU, kind) → bytes, GPU → age, page-locked bytes); without GPUs of which not all is known."""
    unknown = {each.gpu_uuid for each in memory.processes if each.live_bytes is None}
    live: dict[tuple[str, ...], float] = defaultdict(float)
    oldest: dict[str, float] = {}
    pinned: float | None = None
    for process in memory.processes:
        for kind in process.kinds:
            if kind.live_bytes is None:
                continue
            if kind.kind == "host" and process.gpu_uuid is None:
                pinned = (pinned or 0.0) + kind.live_bytes
            elif process.gpu_uuid is not None and process.gpu_uuid not in unknown:
                live[process.gpu_uuid, kind.kind] += kind.live_bytes
            if process.gpu_uuid is not None and kind.oldest_age_seconds is not None:
                oldest[process.gpu_uuid] = max(kind.oldest_age_seconds, oldest.get(process.gpu_uuid, 0.0))
    return dict(live), oldest, None if None in unknown else pinned
