# SPDX-License-Identifier: Apache-2.0
"""Fragmentation of PyTorch's allocators: their blocks beside the ledger's segments, by process and GPU.

Exact only where all agrees: everything was seen from the start, nothing lost, and PyTorch's own sums are
ours. Else there is slack, from PyTorch's sums, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.fragmentation import Fragmentation, from_blocks, from_sums
from hotstage.probes.maps.kernel import KernelMaps
from hotstage.probes.maps.ledger import LedgerMaps, Pair
from hotstage.probes.maps.torch import TorchMaps

_MAPPINGS, _RESERVATIONS = 2, 3  # enum hotstage_memory_space


@dataclass(frozen=True, slots=True)
class TorchMemory:
    """What is known of PyTorch's allocators. Any thread may ask."""

    maps: TorchMaps
    ledger: LedgerMaps

    @classmethod
    def of(cls, maps: KernelMaps, *, is_on: bool) -> TorchMemory | None:
        """None where the allocators are not followed."""
        return cls(maps.torch, maps.ledger) if is_on else None

    def fragmentation(self) -> Mapping[tuple[int, int], Fragmentation]:
        """(pid, ordinal) → as of now. Segments that have ended are taken out of the map meanwhile."""
        devices = self.maps.devices()
        if not len(devices):
            return {}
        blocks, segments = self.maps.blocks(), self.maps.segments()
        live, ended = live_segments(segments, self.ledger.read().allocations)
        self.maps.drop_segments(ended)
        after = {(row["tgid"], row["ordinal"]): row["updated_ns"] for row in self.maps.devices()}
        found: dict[tuple[int, int], Fragmentation] = {}
        for row in devices:
            key = int(row["tgid"]), int(row["ordinal"])
            has_moved = after.get(key) != row["updated_ns"]
            found[key] = (
                _sums_of(row, "it moved while it was read") if has_moved else of_device(row, blocks, live)
            )
        return found


def of_device(device: np.void, blocks: NDArray[np.void], segments: NDArray[np.void]) -> Fragmentation:
    """Of one row of DEVICE_DTYPE; blocks (BLOCK_DTYPE) and live segments (SEGMENT_DTYPE) are everybody's."""
    mine = blocks[(blocks["tgid"] == device["tgid"]) & (blocks["device"] == device["ordinal"])]
    held = segments[(segments["tgid"] == device["tgid"]) & (segments["device"] == device["ordinal"])]
    reason = _doubt(device, mine, held)
    if reason is None:
        try:
            return from_blocks(_spans(held), _spans(mine), mine["requested_bytes"])
        except ValueError as error:
            reason = f"segments and blocks contradict each other: {error}"
    return _sums_of(device, reason)


def live_segments(segments: NDArray[np.void], allocations: Pair) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """SEGMENT_DTYPE rows → those that the ledger still has, and those that have ended.

    Reserved addresses stand for what is mapped in them: a row for each run of mappings without a hole.
    """
    keys, values = allocations
    at = {key.tobytes(): row for row, key in enumerate(keys)} if len(segments) else {}
    wanted = np.zeros(len(segments), keys.dtype)
    wanted["address"], wanted["tgid"] = segments["address"], segments["tgid"]
    wanted["space"] = segments["space"]
    rows = [at.get(key.tobytes(), -1) for key in wanted]
    is_live = np.array(
        [
            row >= 0 and values["since_ns"][row] == since_ns
            for row, since_ns in zip(rows, segments["since_ns"], strict=True)
        ],
        np.bool_,
    )
    live = segments[is_live]
    is_reserved = live["space"] == _RESERVATIONS
    runs = [_mapped(each, keys, values) for each in live[is_reserved]]
    return np.concatenate([live[~is_reserved], *runs]), segments[~is_live]


def _mapped(reserved: np.void, keys: NDArray[np.void], values: NDArray[np.void]) -> NDArray[np.void]:
    """SEGMENT_DTYPE: what is mapped into these addresses, neighbours joined."""
    end = reserved["address"] + reserved["bytes"]
    inside = (keys["tgid"] == reserved["tgid"]) & (keys["space"] == _MAPPINGS)
    inside &= (keys["address"] >= reserved["address"]) & (keys["address"] < end)
    order = np.argsort(keys["address"][inside])
    starts, sizes = keys["address"][inside][order], values["bytes"][inside][order]
    first = np.flatnonzero(np.concatenate([[True], starts[1:] != (starts + sizes)[:-1]])[: len(starts)])
    found = np.full(len(first), reserved)
    found["address"] = starts[first]
    found["bytes"] = np.add.reduceat(sizes, first) if len(first) else 0
    return found


def _doubt(device: np.void, blocks: NDArray[np.void], segments: NDArray[np.void]) -> str | None:
    """Why blocks and segments are not all that there is; None where they are."""
    can_grow = bool((segments["space"] == _RESERVATIONS).any())
    if device["base_bytes"] or (device["base_reserved_bytes"] and not can_grow):
        return "the allocator was at work before it was followed"
    if device["unmatched_frees"] or int(blocks["bytes"].sum()) != device["allocated_bytes"]:
        return "not all of its blocks are known"
    held = int(segments["bytes"].sum())
    # It may have given segments back since the last block: then its own sum is still the one before.
    if held > device["reserved_bytes"] or (can_grow and held != device["reserved_bytes"]):
        return f"its segments are {held} bytes and not the {device['reserved_bytes']} that it says"
    return None


def _sums_of(device: np.void, reason: str) -> Fragmentation:
    return from_sums(int(device["reserved_bytes"]), int(device["allocated_bytes"]), reason)


def _spans(rows: NDArray[np.void]) -> NDArray[np.uint64]:
    return np.stack([rows["address"], rows["bytes"]], axis=1)
