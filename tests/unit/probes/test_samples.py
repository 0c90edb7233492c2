# SPDX-License-Identifier: Apache-2.0
"""A call sample gives each row its own histogram, or an empty one."""

from __future__ import annotations

import numpy as np

from hotstage.probes.maps.layout import CALL_KEY_DTYPE, CALL_STAT_DTYPE, HISTOGRAM_SLOTS
from hotstage.probes.samples import CallSample


def sample() -> CallSample:
    stats = np.zeros(2, CALL_STAT_DTYPE)
    stats["histogram_slot"] = [2, 0]
    histograms = np.zeros((3, HISTOGRAM_SLOTS), np.uint64)
    histograms[2, 97] = 5
    histograms[0, 1] = 9
    return CallSample(1, np.zeros(2, CALL_KEY_DTYPE), stats, np.ones(2, np.bool_), histograms)


def test_a_row_with_a_slot_gets_that_slot() -> None:
    assert np.flatnonzero(sample().histogram(0)).tolist() == [97]


def test_a_row_without_a_slot_gets_zeros_not_slot_zero() -> None:
    assert sample().histogram(1).sum() == 0
    assert len(sample().histogram(1)) == HISTOGRAM_SLOTS
