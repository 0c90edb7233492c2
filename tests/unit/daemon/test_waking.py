# SPDX-License-Identifier: Apache-2.0
"""A wait ends at its time, at news in a ring, or at the end; each is told apart."""

from __future__ import annotations

import os
import signal
import time

import pytest

from hotstage.clock import SystemClock
from hotstage.daemon.waking import Waking, Woken

SECOND = 1_000_000_000


@pytest.fixture
def waking():
    return Waking(SystemClock())


def test_it_waits_until_its_time(waking):
    began_ns = time.monotonic_ns()
    assert waking.wait(began_ns + SECOND // 20) is Woken.time
    assert time.monotonic_ns() - began_ns >= SECOND // 20
    assert waking.wait(0) is Woken.time, "what is past is not waited for"


def test_news_in_a_ring_ends_it_at_once_and_again_until_somebody_reads(waking):
    ring = os.eventfd(0)
    os.eventfd_write(ring, 1)
    began_ns = time.monotonic_ns()
    assert [waking.wait(began_ns + 9 * SECOND, (ring,)) for _ in range(2)] == [Woken.urgent] * 2
    assert time.monotonic_ns() - began_ns < SECOND
    assert waking.wait(time.monotonic_ns() + SECOND // 100) is Woken.time, "a ring that is not asked for"
    os.eventfd_read(ring)
    assert waking.wait(time.monotonic_ns() + SECOND // 100, (ring,)) is Woken.time


def test_the_end_holds_over_all_and_may_be_told_by_a_signal_handler(waking):
    before = signal.signal(signal.SIGUSR1, lambda *_: waking.end())
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert [waking.wait(time.monotonic_ns() + 9 * SECOND) for _ in range(2)] == [Woken.end] * 2
    finally:
        signal.signal(signal.SIGUSR1, before)
