# SPDX-License-Identifier: Apache-2.0
"""What was freed in the middle of the heap goes back, once a minute and where it is worth it."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import time
from hotstage.daemon.trimming import PERIOD_NS, WORTH_BYTES, Trimming, resident_bytes

trimming = Trimming()
trimming.look(0)
# Larger than Python's own pools take, smaller than what is mapped by itself; every fiftieth stays.
held = [bytes(2000) for _ in range(30_000)]
kept, grown = held[::50], resident_bytes()
del held
stays = resident_bytes()
trimming.look(PERIOD_NS - 1)
early = resident_bytes()
began = time.perf_counter()
trimming.look(PERIOD_NS)
print(stays - early, early - resident_bytes(), WORTH_BYTES, time.perf_counter() - began)
"""


def test_memory_of_a_burst_goes_back_within_a_minute_and_takes_the_tick_a_moment():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    before_a_minute, given_back, worth, seconds = map(float, done.stdout.split())
    assert before_a_minute < worth / 8
    assert given_back > 2 * worth
    assert seconds < 0.1
