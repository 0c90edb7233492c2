# SPDX-License-Identifier: Apache-2.0
"""Calls that have not returned yet, by what they wait for: the age of the longest, per process and stage.

The means over 10 s know a call once it has returned; a thread that is stuck shows here, and only here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotstage.frame.call_rates import WAITS
from hotstage.frame.entity import Entity, EntityKind
from hotstage.grouping import first_of_each
from hotstage.probes.catalogue import calls_by_id
from hotstage.stages.labels import StageLabels
from hotstage.stages.pulse import Rows
from hotstage.stages.stage import NO_STAGE, modality_name

_COLUMNS = tuple(f"{name}_open_seconds" for name in WAITS)
_NO_COLUMN = len(_COLUMNS)
_COLUMN_OF_CALL = np.full(1 << 16, _NO_COLUMN, np.uint8)
for _id, _call in calls_by_id().items():
    for _place, _families in enumerate(WAITS.values()):
        if _call.family in _families:
            _COLUMN_OF_CALL[_id] = _place

Cells = dict[Entity, dict[str, float]]


def fill_open_calls(threads: Rows, at_ns: int, labels: StageLabels, cells: Cells) -> None:
    """`threads`: THREAD_DTYPE (T,), as of a fast tick. Ages in seconds at `at_ns` (CLOCK_MONOTONIC)."""
    for pid, stage, modality, column, since_ns in _oldest(threads):
        entities = [Entity(EntityKind.process, pid=pid)]
        if stage != NO_STAGE:
            name = labels[labels.label_of(pid, stage)]
            entities.append(Entity(EntityKind.stage, stage=name, modality=modality_name(modality)))
        age = max(0.0, (at_ns - since_ns) / 1e9)
        for entity in entities:
            cell = cells.setdefault(entity, {})
            cell[_COLUMNS[column]] = max(age, cell.get(_COLUMNS[column], 0.0))


def _oldest(threads: Rows) -> Iterator[tuple[int, int, int, int, int]]:
    """(pid, stage, modality, column, since when) of the call that is open longest, of each that is asked for.

    A thousand threads stand in a few stages of a few processes: what is done one by one is those.
    """
    columns = _COLUMN_OF_CALL[threads["call"]]
    inside = np.flatnonzero(columns != _NO_COLUMN)
    if not len(inside):
        return
    inside = inside[np.argsort(threads["since_ns"][inside], kind="stable")]
    codes = threads["tgid"][inside].astype(np.uint64) << np.uint64(24)
    for shift, part in ((16, threads["stage"]), (8, threads["modality"])):
        codes |= part[inside].astype(np.uint64) << np.uint64(shift)
    codes |= columns[inside]
    codes, first = first_of_each(codes)
    for code, since_ns in zip(codes.tolist(), threads["since_ns"][inside[first]].tolist(), strict=True):
        yield code >> 24, code >> 16 & 0xFF, code >> 8 & 0xFF, code & 0xFF, since_ns
