# SPDX-License-Identifier: Apache-2.0
"""Rows of the maps as values: sums, quantiles, cleaned names, and what is unknown as None."""

from __future__ import annotations

import numpy as np
import pytest

from hotstage.probes.driver import readings
from hotstage.probes.maps import driver as layout


def rows(dtype: np.dtype[np.void], *values: tuple[object, ...]) -> np.ndarray:
    return np.array(list(values), dtype)


def test_a_quantile_is_the_middle_of_its_slot_and_needs_twenty_values() -> None:
    counts = np.zeros(242, np.uint64)
    counts[1 + 22 * 8] = 19  # from 1 s to 2^(1/8) s
    assert readings.quantile_seconds(counts, 0.5) is None
    counts[1 + 22 * 8] = 20
    assert readings.quantile_seconds(counts, 0.5) == pytest.approx(2 ** (1 / 16))
    counts[241] = 80
    assert readings.quantile_seconds(counts, 0.99) is None


def test_fences_are_summed_by_driver_and_timeline() -> None:
    key = rows(layout.TIMELINE_KEY_DTYPE, (b"amdgpu", b"gfx\x1b"), (b"amdgpu", b"idle"))
    stat = np.zeros(2, layout.TIMELINE_STAT_DTYPE)
    stat[0] = (5, 3, 2_000_000_000, 1_500_000_000, np.zeros(242))
    opened = (
        rows(layout.FENCE_KEY_DTYPE, (1, 4), (1, 5)),
        rows(layout.OPEN_FENCE_DTYPE, (4_000, b"amdgpu", b"gfx\x1b"), (1_000, b"amdgpu", b"gfx\x1b")),
    )
    busy, idle = readings.timelines((key, stat), opened, 1_000_001_000)
    assert (busy.timeline, busy.emitted, busy.signaled, busy.open) == ("gfx_", 5, 3, 2)
    assert busy.oldest_open_seconds == 1.0
    assert (busy.total_seconds, busy.max_seconds, busy.p50_seconds) == (2.0, 1.5, None)
    assert (idle.open, idle.oldest_open_seconds, idle.max_seconds) == (0, None, None)


def test_memory_of_a_whole_gpu_has_no_process() -> None:
    found = readings.gpu_memory(
        (
            rows(layout.GPU_MEMORY_KEY_DTYPE, (0, 0), (0, 77)),
            rows(layout.GPU_MEMORY_DTYPE, (4096, 5), (1024, 6)),
        )
    )
    assert [(each.pid, each.bytes) for each in found] == [(None, 4096), (77, 1024)]


def test_ioctls_are_summed_by_class() -> None:
    found = readings.ioctl_classes(
        (
            rows(layout.IOCTL_KEY_DTYPE, (0, 0x462B), (0, 0x4627), (9, 0x462A)),
            rows(layout.IOCTL_STAT_DTYPE, (3, 1, 0, 500, 300), (4, 0, 1, 500, 400), (1, 0, 0, 7, 7)),
        ),
        (("nvidia", "/dev/nvidia*"),),
    )
    assert [(each.device, each.kind, each.count, each.errors, each.slow) for each in found] == [
        ("nvidia", "allocate", 7, 1, 1),
        ("other", "control", 1, 0, 0),
    ]
    assert (found[0].total_seconds, found[0].max_seconds) == (1e-6, 4e-7)


def test_what_this_kernels_event_does_not_say_is_none() -> None:
    known, bare = rows(
        layout.OOM_EVENT_DTYPE,
        (1, 77, 5, 12, 1000, b"py\x07thon"),
        (1, 78, 6, layout.UNKNOWN, layout.UNKNOWN, b""),
    )
    kill = readings.oom_kill(known)
    assert (kill.pid, kill.name, kill.uid, kill.anonymous_bytes) == (77, "py_thon", 1000, 12_288)
    kill = readings.oom_kill(bare)
    assert (kill.pid, kill.name, kill.uid, kill.anonymous_bytes) == (78, None, None, None)


def test_an_xid_of_the_tracepoint_has_the_bus_in_the_one_form() -> None:
    (row,) = rows(layout.XID_EVENT_DTYPE, (2, 79, 5, b"0000:3B:00.0", b"GPU has fallen off the bus."))
    event = readings.xid_event(row)
    assert (event.pci_bus_id, event.xid, event.source) == ("0000:3b:00", 79, "tracepoint")


def test_rings_that_look_alike_are_one() -> None:
    found = readings.rings(
        (rows(layout.RING_DTYPE, (b"a\x01",), (b"a\x02",)), rows(layout.COUNT_DTYPE, (2,), (3,)))
    )
    assert found == {"a_": 5}
