# SPDX-License-Identifier: Apache-2.0
"""A tick that fails ends no agent: it is counted, told once a minute by kind, and lasting failures show."""

from __future__ import annotations

import logging

import pytest

from hotstage.config.settings import Config
from hotstage.daemon.failures import FAILING_SECONDS, TickFailures
from hotstage.daemon.process import Daemon
from hotstage.daemon.selfcheck import SelfMeter
from hotstage.daemon.waking import Woken
from hotstage.errors import HotstageError


def stumble(error):
    try:
        raise error
    except Exception as caught:
        return caught


def test_a_kind_is_told_once_a_minute_with_its_traceback_and_every_one_is_counted(clock, caplog):
    failures = TickFailures(clock)
    with caplog.at_level(logging.ERROR):
        for _ in range(50):
            failures.failed(stumble(OverflowError("too big")), is_slow=False)
            clock.advance(0.1)
        failures.failed(stumble(HotstageError("no map", remedy="restart")), is_slow=False)
        clock.advance(60)
        failures.failed(stumble(OverflowError("too big")), is_slow=False)
    assert failures.total == 52
    first, other, again = caplog.records
    assert first.exc_info[0] is OverflowError
    assert (other.remedy, other.exc_info) == ("restart", None)
    assert (first.untold_before, again.untold_before) == (0, 49)


@pytest.mark.parametrize("is_slow", [False, True])
def test_failures_last_until_a_tick_of_their_kind_comes_through(clock, is_slow):
    failures = TickFailures(clock)
    failures.failed(stumble(ValueError()), is_slow=is_slow)
    assert not failures.are_lasting()
    clock.advance(FAILING_SECONDS + 0.1)
    assert failures.are_lasting()
    failures.came_through(is_slow=False)
    assert failures.are_lasting() is is_slow, "the ticks between say nothing of the second"
    failures.came_through(is_slow=True)
    assert not failures.are_lasting()


class Parts:
    """What the loop asks of the parts."""

    def __init__(self, clock):
        self.meter = SelfMeter(clock)
        self.engine = self

    def urgent_fds(self):
        return ()


class Ticker:
    """Stumbles over its first tick."""

    was_slow = False
    ticks = 0

    def tick(self, *, is_early):
        self.ticks += 1
        if self.ticks == 1:
            raise OverflowError("a program said 2^64 - 1")


class Heart:
    beats = 0

    def ticked(self, *, is_slow):
        self.beats += 1


def test_the_loop_goes_on_after_what_nobody_expected(clock, monkeypatch):
    daemon = Daemon(Config(), clock, Config)
    woken = iter([Woken.time, Woken.time, Woken.time, Woken.end])
    monkeypatch.setattr(daemon._waking, "wait", lambda next_ns, urgent: next(woken))
    parts, ticker, heart = Parts(clock), Ticker(), Heart()
    daemon._loop(parts, ticker, heart)
    assert (ticker.ticks, heart.beats, parts.meter.failures.total) == (3, 2, 1)
