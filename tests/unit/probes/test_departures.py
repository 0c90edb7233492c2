# SPDX-License-Identifier: Apache-2.0
"""Entries of the dead stay for a last read, and those of a pid that lives again stay altogether."""

from __future__ import annotations

from hotstage.probes.departures import THREAD_LINGER_NS, Departures

LINGER_NS = 5_000


def test_a_process_is_due_once_after_the_linger() -> None:
    departures = Departures(LINGER_NS)
    departures.process_gone(42, 1_000)
    assert departures.due(5_999) == ([], [])
    assert departures.due(6_000) == ([42], [])
    assert departures.due(60_000) == ([], [])


def test_a_pid_seen_again_is_not_due() -> None:
    departures = Departures(LINGER_NS)
    departures.process_gone(42, 0)
    departures.process_seen(42)
    assert departures.due(10_000) == ([], [])


def test_a_process_found_missing_again_and_again_is_due_from_the_first_time() -> None:
    departures = Departures(LINGER_NS)
    for at_ns in (1_000, 3_000, 5_000):
        departures.process_missing(42, at_ns)
    assert departures.due(6_000) == ([42], [])


def test_threads_are_due_with_their_process() -> None:
    departures = Departures(LINGER_NS)
    departures.thread_gone(42, 43, 100)
    assert departures.due(5_100) == ([], [(42, 43)])


def test_threads_of_a_process_that_lives_go_sooner() -> None:
    departures = Departures(60 * THREAD_LINGER_NS)
    departures.process_gone(7, 0)
    departures.thread_gone(42, 43, 0)
    assert departures.due(THREAD_LINGER_NS - 1) == ([], [])
    assert departures.due(THREAD_LINGER_NS) == ([], [(42, 43)])
