# SPDX-License-Identifier: Apache-2.0
"""What a tick costs: the line and the metrics sink on synthetic maps, idle, at the demo's rate and busy.

`pytest tests/benchmark/test_tick_cost.py -m slow -s` prints the table. CPU time of the thread; the bounds are
several times what a plain machine needs: they catch a cost that grows with what it should not.
"""

from __future__ import annotations

import statistics
import time
from types import SimpleNamespace

import numpy as np
import pytest
from support.load import Load, Maps
from support.streams import START

from hotstage.clock import SystemClock
from hotstage.config.settings import Config
from hotstage.daemon.line import Line
from hotstage.detect.rules.rule_file import load_rules
from hotstage.sinks.base import Tick
from hotstage.sinks.prometheus import PrometheusSink

IDLE = Load("idle", 0, 1.0, threads=20, call_keys=200, seconds=60)
DEMO = Load("demo", 8.4, 1.0, threads=60, call_keys=400, seconds=60)
BUSY = Load("busy", 20, 10.0, threads=2000, call_keys=2000, seconds=60)
WARM_TICKS = 150
CACHE_BYTES = 32 << 20
"""Written between ticks: in a tenth of a second others empty the caches, and cold code costs three times."""


class Costs:
    """Seconds of CPU by what was done, the warm-up left out."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {"fast": [], "slow": [], "sink": []}

    def __call__(self, name, work, *, counts):
        began = time.thread_time()
        result = work()
        if counts:
            self.seconds[name].append(time.thread_time() - began)
        return result

    def mean(self) -> float:
        """CPU of one core that this would take, as a ratio."""
        per_second = {"fast": 10, "slow": 1, "sink": 10}
        return sum(statistics.mean(self.seconds[name]) * times for name, times in per_second.items())

    def __str__(self) -> str:
        parts = [
            f"{name} {1e3 * min(taken):.2f}/{1e3 * statistics.median(taken):.2f}/"
            f"{1e3 * statistics.mean(taken):.2f} ms"
            for name, taken in self.seconds.items()
        ]
        return "  ".join(parts) + f"  together {self.mean():.2%} of a core"


def costs_of(load: Load) -> Costs:
    """Run a minute of it through the line and the metrics sink."""
    costs = Costs()
    line = Line(Config(), SystemClock(), load_rules((), builtin=True)[0])
    sink = PrometheusSink(SimpleNamespace)
    line.tracker._processes.is_alive = lambda pid: True
    others = np.ones(CACHE_BYTES // 8)
    for number, (sample, calls) in enumerate(Maps(load)):
        others += 1
        counts = number >= WARM_TICKS
        step = costs("fast", lambda sample=sample: line.fast(sample), counts=counts)
        frame = None
        if calls is not None:
            frame = costs(
                "slow", lambda calls=calls: line.slow(calls.at_ns, calls, None, None), counts=counts
            )
        tick = Tick(step.pulse, step.windows, (), step.transitions, START, frame, calls)
        costs("sink", lambda tick=tick: sink.publish(tick), counts=counts)
    return costs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "fast_ms", "slow_ms"),
    [(IDLE, 2, 10), (DEMO, 5, 30), (BUSY, 10, 50)],
    ids=str,
)
def test_a_tick_costs_little(load, fast_ms, slow_ms, capsys):
    costs = costs_of(load)
    with capsys.disabled():
        print(f"\n{load.name:5} min/median/mean: {costs}")
    assert 1e3 * statistics.median(costs.seconds["fast"]) < fast_ms
    assert 1e3 * statistics.median(costs.seconds["slow"]) < slow_ms
