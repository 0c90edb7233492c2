# SPDX-License-Identifier: Apache-2.0
"""The same XID from several sources is one; several from one source are several."""

from __future__ import annotations

from hotstage.daemon.xids import SAME_NS, XidMerge
from hotstage.probes.samples import XidEvent


def event(at_ns: int, source: str, xid: int = 79, bus: str = "0000:3b:00") -> XidEvent:
    return XidEvent(at_ns, bus, xid, f"XID {xid}", source)


def sources(events: tuple[XidEvent, ...]) -> list[str]:
    return [each.source for each in events]


def test_three_sources_of_one_xid_tell_one_and_the_first_stands() -> None:
    merge = XidMerge()
    assert sources(merge.merge([event(20, "kernel_log"), event(10, "tracepoint")])) == ["tracepoint"]
    assert merge.merge([event(30_000_000, "nvml")]) == ()


def test_what_one_source_tells_twice_are_two_whatever_the_others_tell() -> None:
    merge = XidMerge()
    told = merge.merge([event(1, "kernel_log"), event(2, "nvml"), event(3, "kernel_log"), event(4, "nvml")])
    assert sources(told) == ["kernel_log", "kernel_log"]


def test_other_gpus_other_xids_and_later_ones_are_new() -> None:
    merge = XidMerge()
    assert len(merge.merge([event(1, "nvml"), event(2, "kernel_log", xid=48)])) == 2
    assert len(merge.merge([event(3, "kernel_log", bus="0000:5e:00")])) == 1
    assert len(merge.merge([event(1 + SAME_NS, "kernel_log")])) == 1


def test_a_flood_of_made_up_gpus_is_forgotten_again() -> None:
    merge = XidMerge()
    for number in range(1_000):
        merge.merge([event(number * SAME_NS, "kernel_log", bus=f"{number:04x}:00:00")])
    assert len(merge._told) <= 257
