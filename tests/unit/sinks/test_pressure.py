# SPDX-License-Identifier: Apache-2.0
import numpy as np

from hotstage.frame.columns import COLUMN_INDEX, COLUMNS
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.frame import Frame
from hotstage.sinks import pressure_metrics as metrics
from hotstage.sinks.pressure import pressure_children


def test_only_what_is_known_has_a_series():
    instance = Entity(EntityKind.instance, instance="i-0")
    values = np.full((2, len(COLUMNS)), np.nan)
    values[0, COLUMN_INDEX["memory_full_stall_ratio"]] = 0.125
    values[1, COLUMN_INDEX["io_stall_ratio"]] = 0.5
    values[1, COLUMN_INDEX["oom_kill_events"]] = 2
    values[1, COLUMN_INDEX["major_fault_rate"]] = 3
    assert pressure_children(Frame(1, (HOST, instance), values, frozenset())) == {
        metrics.HOST_STALL: [(("memory", "full"), 0.125)],
        metrics.INSTANCE_STALL: [(("i-0", "io"), 0.5)],
        metrics.INSTANCE_THROTTLED: [],
        metrics.INSTANCE_MEMORY_EVENTS: [(("i-0", "oom_kill"), 2.0)],
        metrics.INSTANCE_FAULTS: [(("i-0", "major"), 3.0)],
    }
