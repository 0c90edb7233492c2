# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np

from hotstage.frame.scheduling import INVOLUNTARY, PAGE_FAULTS, PREEMPTED, SLEEP, WOKEN, Added, SchedulingStep
from hotstage.probes.maps.histograms import slot_upper_seconds
from hotstage.sinks.scheduling import SchedulingCounts
from hotstage.sinks.scheduling_metrics import RUN_QUEUE_WAIT, WAIT_EDGES
from hotstage.stages.labels import StageLabels

ENCODE, NO_STAGE, IMAGE = 8, 255, 1


def step(stage=ENCODE, **slots):
    added = Added()
    added.sums[[SLEEP, WOKEN, PREEMPTED, INVOLUNTARY]] = 4.0, 0.5, 0.25, 3
    for slot, count in slots.items():
        added.waits[int(slot[1:])] = count
    return SchedulingStep(1, 1.0, {}, {(stage, IMAGE): added})


def test_times_and_switches_go_to_their_stage():
    counts = SchedulingCounts()
    for _ in range(2):
        counts.add(step(), StageLabels())
    assert dict(counts.off_cpu.items()) == {
        ("vision_encode", "asleep"): 8.0,
        ("vision_encode", "asleep_in_call"): 0.0,
        ("vision_encode", "woken"): 1.0,
        ("vision_encode", "preempted"): 0.5,
        ("vision_encode", "reclaiming"): 0.0,
    }
    assert dict(counts.switches.items()) == {
        ("vision_encode", "voluntary"): 0.0,
        ("vision_encode", "involuntary"): 6.0,
    }
    assert len(counts.waits) == 0


def test_page_faults_are_no_series_where_nobody_counts_them():
    counts = SchedulingCounts()
    counts.add(step(), StageLabels())
    assert dict(counts.page_faults.items()) == {}
    counts.add(replace(step(), has_page_faults=True), StageLabels())
    assert dict(counts.page_faults.items()) == {("vision_encode",): 0.0}
    late = step()
    late.by_stage[(ENCODE, IMAGE)].sums[PAGE_FAULTS] = 7
    counts.add(late, StageLabels())  # of a part of the time: still a sum
    assert dict(counts.page_faults.items()) == {("vision_encode",): 7.0}


def test_each_slot_is_in_the_bucket_that_holds_all_of_it():
    upper = slot_upper_seconds()
    counts = SchedulingCounts()
    for slot in (0, 65, 100, 241):
        counts.add(step(**{f"s{slot}": 1}), StageLabels())
    ((labels, buckets, total),) = counts.waits.items()
    assert labels == ("vision_encode",)
    assert total == 4 * 0.75
    by_edge = [count for _, count in buckets]
    assert by_edge == [
        sum(upper[slot] <= edge for slot in (0, 65, 100, 241)) for edge in (*WAIT_EDGES, np.inf)
    ]


def test_beyond_the_cap_waits_share_other():
    counts = SchedulingCounts()
    for stage in range(17):  # the next one is called other by itself
        counts.add(step(stage, s9=2), StageLabels())
    assert len(counts.waits) == RUN_QUEUE_WAIT.cap
    assert counts.waits.dropped == 2 * (17 - (RUN_QUEUE_WAIT.cap - 1))
