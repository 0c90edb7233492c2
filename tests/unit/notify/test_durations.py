# SPDX-License-Identifier: Apache-2.0
"""Attempts in buckets."""

from __future__ import annotations

from hotstage.notify.durations import Durations
from hotstage.store.deliveries import DURATION_EDGES


def test_an_attempt_counts_in_the_bucket_whose_edge_it_does_not_pass():
    durations = Durations()
    for seconds in (0.001, DURATION_EDGES[0], 0.0079, 100.0):
        durations.add(seconds)
    per_bucket, together = durations.total()
    assert per_bucket[:2] == (2, 1)
    assert per_bucket[-1] == 1
    assert sum(per_bucket) == 4
    assert len(per_bucket) == len(DURATION_EDGES) + 1
    assert round(together, 4) == round(0.001 + DURATION_EDGES[0] + 0.0079 + 100.0, 4)
