# SPDX-License-Identifier: Apache-2.0
import math
from dataclasses import replace

import numpy as np
import pytest

from hotstage.frame.scheduling import SchedulingRates, put_scheduling, wait_quantiles
from hotstage.probes.maps.scheduling import CPU_KEY_DTYPE, CPU_STAT_DTYPE, CPU_THREAD_DTYPE
from hotstage.probes.samples import SchedulingSample
from hotstage.stages.labels import StageLabels

SECOND = 1_000_000_000
ENCODE, DECODE, IMAGE, OWN = 8, 13, 1, 40


def sample(at_seconds, *rows):
    """Rows: (pid, stage, woken ns, preempted ns, asleep in calls ns, involuntary, waits by slot)."""
    keys, stats = np.zeros(len(rows), CPU_KEY_DTYPE), np.zeros(len(rows), CPU_STAT_DTYPE)
    histograms = np.zeros((len(rows) + 1, 242), np.uint64)
    for place, (pid, stage, woken, preempted, in_call, involuntary, waits) in enumerate(rows):
        keys[place] = (pid, stage, IMAGE, 0)
        stats["woken_wait_ns"][place] = (woken, 0)
        stats["preempted_wait_ns"][place] = (0, preempted)
        stats["sleep_ns"][place] = (0, in_call)
        stats["involuntary"][place] = involuntary
        stats["histogram_slot"][place] = place + 1
        for slot, count in waits.items():
            histograms[place + 1, slot] = count
    return SchedulingSample(at_seconds * SECOND, keys, stats, histograms, np.zeros(0, CPU_THREAD_DTYPE))


def test_page_faults_are_known_only_where_they_were_counted_all_the_time():
    rates = SchedulingRates()
    for second, epoch in enumerate((1, 1, 1, None, 2, 2)):
        taken = sample(second, (7, ENCODE, 0, 0, 0, 0, {}))
        taken.stats["page_faults"] = 5 * second
        rates.take(replace(taken, page_fault_epoch=epoch), StageLabels())
        if second == 2:
            cell = {}
            put_scheduling(cell, rates.of_all(), rates.seconds, has_page_faults=rates.has_page_faults)
            assert cell["page_fault_rate"] == 5
    assert rates.step.has_page_faults
    cell = {}
    put_scheduling(cell, rates.of_all(), rates.seconds, has_page_faults=rates.has_page_faults)
    assert "page_fault_rate" not in cell


def test_the_first_sample_is_the_baseline():
    rates = SchedulingRates()
    rates.take(sample(1, (7, ENCODE, SECOND, 0, 0, 3, {5: 3})), StageLabels())
    assert rates.step is None and rates.seconds == 0
    rates.take(sample(2, (7, ENCODE, SECOND, SECOND // 2, 0, 5, {5: 3, 9: 2})), StageLabels())
    cell = {}
    put_scheduling(cell, rates.of_all(), rates.seconds)
    assert cell["cpu_wait_threads"] == cell["cpu_preempted_threads"] == 0.5
    assert cell["cpu_preemption_rate"] == 2
    assert rates.step.by_stage[(ENCODE, IMAGE)].waits[9] == 2
    assert rates.step.by_stage[(ENCODE, IMAGE)].waits.sum() == 2


def test_means_are_over_ten_seconds_and_end_with_them():
    rates = SchedulingRates()
    for second in range(1, 25):
        woken = min(second, 5) * SECOND
        rates.take(sample(second, (7, ENCODE, woken, 0, 0, 0, {})), StageLabels())
        if second == 6:
            assert rates.of_pids([7]).sum() == 4
    assert rates.of_all().sum() == 0
    assert rates.of_stages() == {}


def test_a_process_that_came_by_the_same_pid_begins_anew():
    rates = SchedulingRates()
    rates.take(sample(1, (7, ENCODE, 0, 0, 0, 9, {})), StageLabels())
    keys = sample(2, (7, ENCODE, SECOND, 0, 0, 1, {4: 1}))
    keys.stats["voluntary"] = 0
    rates.take(keys, StageLabels())
    assert rates.step.by_pid[7].sum() > 0


def test_work_of_several_processes_is_summed_by_label_and_kept_apart_by_pid():
    labels = StageLabels()
    labels.know({(7, OWN): "rerank", (8, OWN + 1): "rerank"})
    rates = SchedulingRates()
    rates.take(sample(1), labels)
    rates.take(
        sample(
            2,
            (7, OWN, SECOND, 0, 0, 0, {3: 1}),
            (8, OWN + 1, 0, SECOND, 0, 0, {3: 1}),
            (8, DECODE, 0, 0, SECOND, 0, {}),
        ),
        labels,
    )
    stages = {(labels[label], modality): added for (label, modality), added in rates.of_stages().items()}
    assert stages[("rerank", IMAGE)].waits[3] == 2
    assert stages[("rerank", IMAGE)].sums.sum() == 2
    cell = {}
    put_scheduling(cell, rates.of_pids([8]), rates.seconds)
    assert (cell["cpu_wait_threads"], cell["call_sleep_threads"]) == (1, 1)


def test_rows_may_come_in_any_order_and_new_ones_between_them():
    rates = SchedulingRates()
    first, second = (7, ENCODE, SECOND, 0, 0, 0, {3: 1}), (8, DECODE, 0, SECOND, 0, 0, {4: 5})
    rates.take(sample(1, first, second), StageLabels())
    grown = (8, DECODE, 0, 3 * SECOND, 0, 0, {4: 7})
    rates.take(sample(2, grown, (9, ENCODE, 0, 0, SECOND, 0, {}), first), StageLabels())
    assert {pid: sums.sum() for pid, sums in rates.step.by_pid.items()} == {8: 2, 9: 1}
    assert rates.step.by_stage[(DECODE, IMAGE)].waits[4] == 2
    rates.take(sample(3, first, grown), StageLabels())
    assert rates.step.by_pid == {} and rates.step.by_stage == {}


def test_while_nothing_is_watched_nothing_is_known():
    rates = SchedulingRates()
    rates.take(sample(1, (7, ENCODE, 0, 0, 0, 0, {})), StageLabels())
    rates.take(sample(2, (7, ENCODE, SECOND, 0, 0, 0, {})), StageLabels())
    rates.take(None, StageLabels())
    assert rates.step is None and rates.seconds == 0
    rates.take(sample(3, (7, ENCODE, 9 * SECOND, 0, 0, 0, {})), StageLabels())
    assert rates.step is None


@pytest.mark.parametrize(("count", "expected"), [(19, math.nan), (100, 2.0**-21)])
def test_a_quantile_is_the_upper_edge_of_its_slot_and_needs_samples(count, expected):
    waits = np.zeros((2, 242), np.uint64)
    waits[1, 8] = count  # the eighth slot after the underflow ends at 2^-21 s
    assert wait_quantiles(waits, 0.95) == pytest.approx([math.nan, expected], nan_ok=True)
