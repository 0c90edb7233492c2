# SPDX-License-Identifier: Apache-2.0
"""Signals that come in floods, one in the middle of another: the agent goes on by the last word of each, and
ends in order.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.kernel

FLOOD_SECONDS = 3.0


def flood(pid, numbers):
    """Send them in turn, as fast as two threads can, for so long; how many were sent."""
    ends, sent = time.monotonic() + FLOOD_SECONDS, [0, 0]

    def send(which):
        while time.monotonic() < ends:
            for number in numbers:
                os.kill(pid, number)
                sent[which] += 1

    threads = [threading.Thread(target=send, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(sent)


def descriptors_of(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_a_flood_of_signals_neither_ends_the_agent_nor_stops_it(start, until):
    agent = start()
    before = descriptors_of(agent.process.pid)
    sent = flood(agent.process.pid, (signal.SIGHUP, signal.SIGUSR1, signal.SIGHUP, signal.SIGUSR2))
    print(f"{sent} signals in {FLOOD_SECONDS} s")
    # Signals that wait together have no order: the last order comes when the others have been taken.
    until(lambda: agent.get("/v1/probes"), "the agent answers")
    time.sleep(1.0)
    agent.process.send_signal(signal.SIGUSR2)
    until(
        lambda: (answer := agent.get("/v1/probes")) and json.loads(answer[1])["state"] == "on",
        "the last order holds",
    )
    until(agent.is_ready, "ticks go on")
    assert descriptors_of(agent.process.pid) <= before + 8
    code, told = agent.end()
    assert code == 0, told
    assert "Traceback" not in told
