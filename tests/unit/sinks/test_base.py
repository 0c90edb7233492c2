# SPDX-License-Identifier: Apache-2.0
"""One output's failure never reaches another."""

from __future__ import annotations

from hotstage.sinks.base import Sinks, Tick
from hotstage.stages.pulse import quiet_pulse
from hotstage.windows.window import WindowUpdate


class Recording:
    def __init__(self, name, broken=False):
        self.name, self.broken, self.seen = name, broken, []

    def publish(self, tick):
        if self.broken:
            raise ValueError("broken")
        self.seen.append(tick)


def test_the_others_go_on_and_the_failure_is_counted_and_logged_once(caplog):
    tick = Tick(quiet_pulse(1), WindowUpdate(), (), (), 0)
    bad, good = Recording("bad", broken=True), Recording("good")
    sinks = Sinks([bad, good])
    sinks.publish(tick)
    sinks.publish(tick)
    assert good.seen == [tick, tick]
    assert sinks.errors == {"bad": 2, "good": 0}
    assert len(caplog.records) == 1
    bad.broken = False
    sinks.publish(tick)
    bad.broken = True
    sinks.publish(tick)
    assert len(caplog.records) == 2


def test_an_output_that_is_looked_after_by_others_is_counted_while_it_is_unwell_and_logged_once(caplog):
    sinks = Sinks([], watched=("page",))
    assert sinks.errors == {"page": 0}
    for problem in (None, "it is gone", "it is gone", None, "it is gone"):
        sinks.note("page", problem, "make it anew")
    assert sinks.errors == {"page": 3}
    assert [record.getMessage() for record in caplog.records] == ["an output fails: it is gone"] * 2
