# SPDX-License-Identifier: Apache-2.0
"""Calls that have not returned yet, by what they wait for: the age of the longest, per process and stage.

The means over 10 s know a call once it has returned; a thread that is stuck shows here, and only here.
"""

from __future__ import annotations

import numpy as np

from hotstage.frame.call_rates import WAITS
from hotstage.frame.entity import Entity, EntityKind
from hotstage.probes.catalogue import calls_by_id
from hotstage.stages.labels import StageLabels
from hotstage.stages.pulse import Rows
from hotstage.stages.stage import NO_STAGE, modality_name

_COLUMN_OF_CALL = {
    call_id: f"{name}_open_seconds"
    for call_id, call in calls_by_id().items()
    for name, families in WAITS.items()
    if call.family in families
}
_READ = ("tgid", "call", "since_ns", "stage", "modality")

Cells = dict[Entity, dict[str, float]]


def fill_open_calls(threads: Rows, at_ns: int, labels: StageLabels, cells: Cells) -> None:
    """`threads`: THREAD_DTYPE (T,), as of a fast tick. Ages in seconds at `at_ns` (CLOCK_MONOTONIC)."""
    inside = threads[np.flatnonzero(threads["call"])]
    for pid, call, since_ns, stage, modality in zip(*(inside[name].tolist() for name in _READ), strict=True):
        column = _COLUMN_OF_CALL.get(call)
        if column is None:
            continue
        entities = [Entity(EntityKind.process, pid=pid)]
        if stage != NO_STAGE:
            name = labels[labels.label_of(pid, stage)]
            entities.append(Entity(EntityKind.stage, stage=name, modality=modality_name(modality)))
        age = max(0.0, (at_ns - since_ns) / 1e9)
        for entity in entities:
            cell = cells.setdefault(entity, {})
            cell[column] = max(age, cell.get(column, 0.0))
