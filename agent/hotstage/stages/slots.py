# SPDX-License-Identifier: Apache-2.0
"""From the slots of a request in the kernel to stage ids: the last six are of stages a server made up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.maps.layout import OWN_SLOTS, STAGE_SLOTS

FIRST_OWN = STAGE_SLOTS - OWN_SLOTS


def stage_of_slots(own_stages: NDArray[np.uint64], slots: NDArray[Any]) -> NDArray[np.uint8]:
    """(N,) slots of requests that claimed `own_stages` (N,) → stage ids (N,); 0 for a slot that is free."""
    stages = slots.astype(np.uint8)
    own = slots >= FIRST_OWN
    if own.any():
        shift = (slots[own] - FIRST_OWN).astype(np.uint64) * np.uint64(8)
        stages[own] = own_stages[own] >> shift & np.uint64(0xFF)
    return stages
