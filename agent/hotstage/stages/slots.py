# SPDX-License-Identifier: Apache-2.0
"""A request's slots and its identity, as the kernel has them: from slots to stage ids and back.

The last six slots are of stages that a server made up; the request's `own_stages` says which.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.maps.layout import OWN_LAST, OWN_SLOTS, OWN_STAGE, STAGE_SLOTS

FIRST_OWN = STAGE_SLOTS - OWN_SLOTS
_SHIFTS = np.arange(OWN_SLOTS, dtype=np.uint64) * np.uint64(8)


def stage_of_slots(own_stages: NDArray[np.uint64], slots: NDArray[Any]) -> NDArray[np.uint8]:
    """(N,) slots of requests that claimed `own_stages` (N,) → stage ids (N,); 0 for a slot that is free."""
    stages = slots.astype(np.uint8)
    own = slots >= FIRST_OWN
    if own.any():
        shift = _SHIFTS[slots[own] - FIRST_OWN]
        stages[own] = own_stages[own] >> shift & np.uint64(0xFF)
    return stages


def slots_of_stages(own_stages: NDArray[np.uint64], stages: NDArray[np.uint8]) -> NDArray[np.intp]:
    """(N,) stage ids → slots (N,); -1 for an own stage that the request never claimed, or no stage."""
    # Widened first: -1 in eight bits is 255, and a mark may say any stage.
    slots = np.where(stages < FIRST_OWN, stages.astype(np.intp), -1)
    own = np.flatnonzero((stages >= OWN_STAGE) & (stages <= OWN_LAST))
    if len(own):
        claimed = own_stages[own, None] >> _SHIFTS & np.uint64(0xFF)
        is_it = claimed == stages[own, None]
        slots[own] = np.where(is_it.any(axis=1), FIRST_OWN + is_it.argmax(axis=1), -1)
    return slots


def identities(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """(N,) requests → 64 bits that tell each from every other: its cgroup, the hash of its id, its start."""
    key: NDArray[np.uint64] = rows["request_hash"] * np.uint64(0x9E3779B97F4A7C15)
    key ^= rows["cgroup_id"] * np.uint64(0xC2B2AE3D27D4EB4F)
    key ^= rows["started_ns"] * np.uint64(0x165667B19E3779F9)
    return key
