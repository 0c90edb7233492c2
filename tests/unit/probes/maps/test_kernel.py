# SPDX-License-Identifier: Apache-2.0
"""Count keys as single numbers: equal only for equal keys."""

from __future__ import annotations

import numpy as np

from hotstage.probes.maps.kernel import pack_keys
from hotstage.probes.maps.layout import CALL_KEY_DTYPE


def test_keys_that_differ_anywhere_pack_to_different_numbers() -> None:
    base = (4_194_303, 511, 255, 255, 255, 3, 7, 0)
    rows = [base]
    for position, value in enumerate((4_194_302, 510, 254, 254, 254, 2, 6)):
        changed = list(base)
        changed[position] = value
        rows.append(tuple(changed))
    keys = np.array(rows, CALL_KEY_DTYPE)
    assert len(set(pack_keys(keys).tolist())) == len(rows)


def test_no_keys_pack_to_no_numbers() -> None:
    assert pack_keys(np.empty(0, CALL_KEY_DTYPE)).shape == (0,)
