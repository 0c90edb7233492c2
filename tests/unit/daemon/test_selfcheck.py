# SPDX-License-Identifier: Apache-2.0
"""Tick times are nearest-rank over the last ones; what was not measured is unknown."""

from __future__ import annotations

from hotstage.daemon.selfcheck import SelfMeter


def test_nothing_timed_is_unknown(clock):
    sample = SelfMeter(clock).sample()
    assert sample.fast_tick_p99_seconds is None
    assert sample.slow_tick_p99_seconds is None
    assert sample.start_to_attached_seconds is None
    assert sample.cpu_ratio is None


def test_the_p99_is_the_99th_of_a_hundred(clock):
    meter = SelfMeter(clock)
    for milliseconds in range(1, 101):
        began_ns = clock.monotonic_ns()
        clock.advance(milliseconds / 1000)
        meter.took(began_ns, is_slow=False)
    sample = meter.sample()
    assert sample.fast_tick_p99_seconds == 0.099
    assert sample.fast_ticks == 100
    assert sample.slow_tick_p99_seconds is None
    assert meter.last_tick_ns == clock.monotonic_ns()


def test_an_early_tick_is_timed_and_moves_no_count_and_the_page_is_timed_from_the_decision(clock):
    meter = SelfMeter(clock)
    began_ns = clock.monotonic_ns()
    clock.advance(0.002)
    meter.paged(began_ns)
    meter.took(began_ns, is_slow=False, is_early=True)
    sample = meter.sample()
    assert (sample.fast_ticks, sample.early_ticks, sample.fast_tick_p99_seconds) == (0, 1, 0.002)
    assert sample.decision_to_page_p99_seconds == 0.002


def test_memory_and_cpu_are_this_process(clock):
    meter = SelfMeter(clock)
    clock.advance(3600)
    sample = meter.sample()
    assert 5 << 20 < sample.rss_bytes < 2 << 30
    assert sample.cpu_ratio is not None
    assert 0 <= sample.cpu_ratio < 1
    assert sample.document()["rss_bytes"] == sample.rss_bytes
