# SPDX-License-Identifier: Apache-2.0
"""What a point and the map sizes say about themselves."""

from __future__ import annotations

from hotstage.probes.loader.base import AttachPoint, MapSizes, PointKind


def test_the_cookie_carries_the_call_and_its_layer() -> None:
    point = AttachPoint(300, "cudaMalloc", 0x10, PointKind.TIMED, True, 0x10, layer=1)
    assert point.cookie == 300 + 65536


def test_as_many_free_slots_as_histograms() -> None:
    entries = MapSizes(call_histograms=77).entries()
    assert entries["call_histograms"] == entries["free_histograms"] == 77


def test_a_map_can_be_sized_by_its_name() -> None:
    assert MapSizes(by_name={"losses": 3, "threads": 5}).entries()["threads"] == 5
