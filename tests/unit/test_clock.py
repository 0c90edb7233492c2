# SPDX-License-Identifier: Apache-2.0
"""One moment always gets one date."""

from __future__ import annotations

import time

from hotstage.clock import SystemClock, boot_id, rfc3339


def test_the_same_moment_has_the_same_date_whenever_it_is_asked():
    clock = SystemClock()
    moment = clock.monotonic_ns()
    assert len({clock.wall_ns_of(moment) for _ in range(1000)}) == 1


def test_a_date_is_right_to_two_milliseconds():
    clock = SystemClock()
    assert abs(clock.wall_ns_of(clock.monotonic_ns()) - time.time_ns()) < 2_000_000


def test_dates_are_utc_with_milliseconds():
    assert rfc3339(1_795_977_695_768_422_074) == "2026-11-29T18:41:35.768Z"
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"


def test_the_boot_id_is_the_kernels():
    assert len(boot_id()) == 36
