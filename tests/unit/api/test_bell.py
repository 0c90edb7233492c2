# SPDX-License-Identifier: Apache-2.0
"""Waiting for news without missing any."""

from __future__ import annotations

import threading

from hotstage.api.bell import Bell


def test_a_ring_between_looking_and_waiting_is_not_missed():
    bell = Bell()
    seen = bell.count
    bell.ring()
    assert bell.wait(seen, 0) is True


def test_without_a_ring_the_wait_ends_false():
    bell = Bell()
    assert bell.wait(bell.count, 0.01) is False


def test_a_ring_wakes_and_closing_wakes_for_good():
    bell = Bell()
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(bell.wait(0, 10)))
    waiting.start()
    bell.ring()
    waiting.join(5)
    bell.close()
    assert answers == [True]
    assert bell.wait(bell.count, 10) is False
    assert bell.is_closed
