# SPDX-License-Identifier: Apache-2.0
"""Bounded counting."""

from __future__ import annotations

import numpy as np

from hotstage.sinks.metrics import Metric
from hotstage.sinks.tally import HistogramTally, Tally

COUNTER = Metric("c_total", "counter", ("a", "b"), "x.", cap=3)
HISTOGRAM = Metric("h_seconds", "histogram", ("a",), "x.", cap=2, edges=(1.0, 2.0, 4.0))


def observe(tally, labels, *values, weight=1):
    for value, bucket in zip(values, tally.buckets(np.array(values)), strict=True):
        tally.add(labels, bucket, value, weight)


def test_counts_add_up_per_label_values():
    tally = Tally(COUNTER)
    tally.add(("x", "y"))
    tally.add(("x", "y"), 4)
    tally.add(("x", "z"))
    assert dict(tally.items()) == {("x", "y"): 5.0, ("x", "z"): 1.0}


def test_beyond_the_cap_all_new_values_share_other_and_are_counted_as_dropped():
    tally = Tally(COUNTER)
    for name in "abcd":
        tally.add((name, "y"))
    tally.add(("a", "y"))
    assert dict(tally.items()) == {("a", "y"): 2.0, ("b", "y"): 1.0, ("other", "other"): 2.0}
    assert (len(tally), tally.dropped) == (3, 2)


def test_a_value_on_an_edge_is_in_the_bucket_below_it():
    tally = HistogramTally(HISTOGRAM)
    observe(tally, ("x",), 1.0, 1.5, 4.0, 4.1)
    ((labels, buckets, total),) = tally.items()
    assert labels == ("x",)
    assert buckets == [("1.0", 1), ("2.0", 2), ("4.0", 3), ("+Inf", 4)]
    assert total == 10.6


def test_weights_count_a_value_several_times():
    tally = HistogramTally(HISTOGRAM)
    observe(tally, ("x",), 0.5, weight=3)
    ((_, buckets, total),) = tally.items()
    assert (buckets[0], buckets[-1], total) == (("1.0", 3), ("+Inf", 3), 1.5)


def test_histograms_are_bounded_as_well():
    tally = HistogramTally(HISTOGRAM)
    for name in "abc":
        observe(tally, (name,), 1.0)
    assert [labels for labels, _, _ in tally.items()] == [("a",), ("other",)]
    assert (len(tally), tally.dropped) == (2, 2)
