# SPDX-License-Identifier: Apache-2.0
"""What the scheduler did since the last slow tick → cumulative counts by stage."""

from __future__ import annotations

import numpy as np

from hotstage.frame import scheduling
from hotstage.frame.scheduling import Counts, SchedulingStep
from hotstage.probes.maps.histograms import slot_upper_seconds
from hotstage.sinks import scheduling_metrics as metrics
from hotstage.sinks.tally import HistogramTally, Tally
from hotstage.stages.labels import StageLabels

_STATES = {
    "asleep": scheduling.SLEEP,
    "asleep_in_call": scheduling.SLEEP_IN_CALL,
    "woken": scheduling.WOKEN,
    "preempted": scheduling.PREEMPTED,
    "reclaiming": scheduling.RECLAIM,
}
_KINDS = {"voluntary": scheduling.VOLUNTARY, "involuntary": scheduling.INVOLUNTARY}

# A slot's upper edge is a bucket's where both are powers of two: no count is split.
_BUCKET_OF_SLOT = np.searchsorted(np.array(metrics.WAIT_EDGES), slot_upper_seconds(), side="left")


class SchedulingCounts:
    """Everything of this part that only grows. Not thread-safe."""

    def __init__(self) -> None:
        self.waits = HistogramTally(metrics.RUN_QUEUE_WAIT)
        self.off_cpu = Tally(metrics.OFF_CPU)
        self.switches = Tally(metrics.SWITCHES)
        self.page_faults = Tally(metrics.PAGE_FAULTS)

    def add(self, step: SchedulingStep, stages: StageLabels) -> None:
        """A stage whose threads are watched has all states: none of one is a count, not a gap."""
        for (label, _), added in step.by_stage.items():
            stage = stages[label]
            for state, place in _STATES.items():
                self.off_cpu.add((stage, state), float(added.sums[place]))
            for kind, place in _KINDS.items():
                self.switches.add((stage, kind), float(added.sums[place]))
            faults = float(added.sums[scheduling.PAGE_FAULTS])
            if faults or step.has_page_faults:  # of a part of the time, too: a sum, not a rate
                self.page_faults.add((stage,), faults)
            if added.waits.any():
                waited = float(added.sums[scheduling.WOKEN] + added.sums[scheduling.PREEMPTED])
                self.waits.merge((stage,), _buckets(added.waits), waited)


def _buckets(waits: Counts) -> list[int]:
    """uint64 (242,) slots → how many in each bucket, the last one above all edges."""
    counts = np.zeros(len(metrics.WAIT_EDGES) + 1, np.int64)
    np.add.at(counts, _BUCKET_OF_SLOT, waits.astype(np.int64))
    found: list[int] = counts.tolist()
    return found
