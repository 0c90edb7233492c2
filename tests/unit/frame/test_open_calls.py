# SPDX-License-Identifier: Apache-2.0
"""A call that has not returned shows with its age, where it is and by what it waits for."""

from __future__ import annotations

import numpy as np
import pytest
from support.kernel_rows import SECOND, Stage, thread
from support.pulses import pulse

from hotstage.config.settings import FrameConfig
from hotstage.frame.entity import Entity, EntityKind
from hotstage.frame.fuse import Fuser
from hotstage.probes.catalogue import calls_by_id
from hotstage.stages.tracker import PROBES_OFF

NOW = 1000 * SECOND
IDS = {call.name: call_id for call_id, call in calls_by_id().items()}
STUCK, COPIES, ALLOCATES, LAUNCHES = (
    IDS[name] for name in ("cuStreamSynchronize", "cuMemcpyHtoD_v2", "cuMemAlloc_v2", "cuLaunchKernel")
)
PROCESS = Entity(EntityKind.process, pid=100)
PREFILL = Entity(EntityKind.stage, stage="llm_prefill", modality="unknown")
COLUMNS = ("sync_open_seconds", "copy_open_seconds", "alloc_open_seconds")


def frame_of(*threads, stale=frozenset()):
    rows = np.array(threads)
    return Fuser(FrameConfig()).fuse(NOW, [pulse(NOW, stale=stale)], threads=rows)


def ages(frame, entity):
    return [frame.value(entity, name) if entity in frame else None for name in COLUMNS]


def test_the_longest_open_call_of_each_kind_is_told_by_process_and_stage():
    frame = frame_of(
        thread(1, call=STUCK, since_ns=NOW - 60 * SECOND, stage=Stage.llm_prefill),
        thread(2, call=STUCK, since_ns=NOW - 2 * SECOND, stage=Stage.llm_prefill),
        thread(3, call=COPIES, since_ns=NOW - 3 * SECOND),
        thread(4, pid=101, call=ALLOCATES, since_ns=NOW - SECOND),
        thread(5, call=LAUNCHES, since_ns=NOW - 9 * SECOND),
        thread(6, since_ns=NOW - 99 * SECOND),
    )
    assert ages(frame, PROCESS) == [pytest.approx(60.0), pytest.approx(3.0), None]
    assert ages(frame, Entity(EntityKind.process, pid=101)) == [None, None, pytest.approx(1.0)]
    assert ages(frame, PREFILL) == [pytest.approx(60.0), None, None]


def test_nothing_is_in_flight_where_nobody_looks():
    stuck = thread(1, call=STUCK, since_ns=NOW - 60 * SECOND)
    assert ages(frame_of(stuck, stale=frozenset({PROBES_OFF})), PROCESS) == [None, None, None]
