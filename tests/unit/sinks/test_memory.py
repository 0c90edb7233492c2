# SPDX-License-Identifier: Apache-2.0
"""Memory as metrics: by GPU and kind, and nothing of what is unknown."""

from __future__ import annotations

from hotstage.frame.memory_types import (
    FragmentationFigure,
    Memory,
    MemoryKind,
    MemoryOfGpu,
    MemoryOfProcess,
    MemoryOfStage,
)
from hotstage.sinks import memory_metrics as metrics
from hotstage.sinks.memory import memory_children
from hotstage.sinks.prometheus import PrometheusSink

UNKNOWN = FragmentationFigure("unknown", None, None, None, None)


def a_process(pid=7, gpu="GPU-1", live: int | None = 3, kinds=(("device", 3),)):
    rows = [MemoryKind(kind, size, 1, 0, size, size, 0, 0, 0, 0, 0, 2.0, 2.0) for kind, size in kinds]
    device = None if gpu is None else 0
    return MemoryOfProcess(pid, "server", device, gpu, live is not None, live, 0, rows, [], [], UNKNOWN)


def a_memory(*processes, stages=(), figure=UNKNOWN):
    return Memory([MemoryOfGpu("GPU-1", 10, 5, 5, 3, 1, figure)], list(processes), list(stages), 1, 44)


def test_kinds_of_all_processes_add_up_largest_first():
    found = memory_children(
        a_memory(
            a_process(),
            a_process(8, kinds=(("device", 4), ("pool", 90))),
            a_process(9, None, 0, (("host", 5),)),
        )
    )
    assert found[metrics.LIVE] == [(("GPU-1", "pool"), 90.0), (("GPU-1", "device"), 7.0)]
    assert found[metrics.PINNED] == [((), 5.0)]
    assert found[metrics.OLDEST] == [(("GPU-1",), 2.0)]
    assert found[metrics.ENDED] == [((), 44.0)]


def test_a_gpu_with_a_process_that_is_not_whole_has_no_live_bytes():
    found = memory_children(a_memory(a_process(), a_process(8, live=None)))
    assert found[metrics.LIVE] == []
    assert found[metrics.FAILED_FITTING] == [(("GPU-1",), 1.0)]


def test_fragmentation_is_told_with_its_basis_where_there_is_a_ratio():
    assert memory_children(a_memory())[metrics.FRAGMENTATION] == []
    figure = FragmentationFigure("torch", 0.25, 4, 3, None)
    assert memory_children(a_memory(figure=figure))[metrics.FRAGMENTATION] == [(("GPU-1", "torch"), 0.25)]


def test_stages_tell_what_they_have_and_had():
    stage = MemoryOfStage("vision_encode", "image", 10, 30, 1, 99, 1.0, 1.0)
    found = memory_children(a_memory(stages=[stage]))
    assert found[metrics.STAGE_LIVE] == [(("vision_encode", "image"), 10.0)]
    assert found[metrics.STAGE_HIGH] == [(("vision_encode", "image"), 30.0)]


def test_it_is_told_on_the_fast_ticks_between_two_frames(a_frame, a_tick, plain_facts):
    sink = PrometheusSink(lambda: plain_facts)
    sink.publish(a_tick(frame=a_frame({})))
    sink.publish(a_tick(frame=None, memory=a_memory(a_process())))
    body, _ = sink.render("")
    assert b'hotstage_memory_live_bytes{gpu_uuid="GPU-1",kind="device"} 3.0' in body
