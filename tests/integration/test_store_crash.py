# SPDX-License-Identifier: Apache-2.0
"""An agent killed at random moments while it writes: no half-written window, no window left open, none
untold.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading

import pytest

from hotstage.clock import SystemClock, boot_id
from hotstage.store import outbox, windows
from hotstage.store.store import Store


def told(database):
    """Window id → the types of its events, in order."""
    found: dict[str, list[str]] = {}
    for row in outbox.after(database, 0, 100_000):
        found.setdefault(row.event.subject.removeprefix("window:"), []).append(row.event.type.split(".")[3])
    return found


def test_killed_at_random_moments_every_window_is_whole_and_told(start_agent, tmp_path):
    draw = random.Random(20261129)
    opened = 0
    for _ in range(5):
        agent = start_agent()
        timer = threading.Timer(0.05 + 0.2 * draw.random(), agent.process.kill)
        timer.start()
        try:
            while True:
                agent.order(f"open w{opened}")
                opened += 1
                if draw.random() < 0.7:
                    agent.order(f"close w{opened - 1}")
        except BrokenPipeError:
            pass
        timer.join()
        agent.process.wait(10)
    agent = start_agent()
    assert agent.end() == 0
    store = Store(tmp_path / "agent" / "state", SystemClock(), boot_id())
    assert store.database.read("PRAGMA integrity_check") == [("ok",)]
    found = windows.newest(store.database, include_open=True, limit=100_000)
    events = told(store.database)
    assert len(found) > 20
    assert {stored.window.id for stored in found} == set(events)
    assert {stored.state for stored in found} == {"closed", "interrupted"}
    assert all(kinds == ["opened", "closed"] for kinds in events.values())
    store.close()


def test_a_window_open_at_a_kill_is_closed_as_interrupted_with_an_event_that_says_so(start_agent, tmp_path):
    agent = start_agent()
    agent.order("open w-1")
    assert agent.answer("committed")
    agent.kill()
    agent = start_agent()
    assert agent.ready["interrupted"] == ["w-1"]
    agent.end()
    store = Store(tmp_path / "agent" / "state", SystemClock(), boot_id())
    assert windows.load(store.database, "w-1").state == "interrupted"
    *_, last = outbox.after(store.database, 0, 10)
    assert json.loads(last.event.body)["data"]["interrupted"] is True
    store.close()


def test_breakers_come_back_on_the_page_as_they_were_committed(start_agent, tmp_path):
    from hotstage_marks.breakers import BreakerPage

    agent = start_agent()
    assert agent.trip("a")
    agent.kill()
    (tmp_path / "agent" / "breakers").unlink()
    page = BreakerPage(str(tmp_path / "agent" / "breakers"))
    assert page.allow("stage:sa:image") is True, "no page: admit"
    start_agent()
    assert BreakerPage(str(tmp_path / "agent" / "breakers")).allow("stage:sa:image") is False


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 2 MiB mounted as the agent's directory."""
    directory = tmp_path / "agent"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(directory)]
    subprocess.run(command, capture_output=True, check=True)
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


@pytest.mark.kernel  # mounting needs root
def test_a_really_full_disk_delays_events_and_loses_none(
    small_disk, start_agent, start_notifier, receive, until
):
    agent, receiver = start_agent(), receive()
    assert agent.trip("a")
    filler = small_disk / "filler"
    filler.write_bytes(b"")
    descriptor = os.open(filler, os.O_WRONLY)
    with pytest.raises(OSError, match="No space"):
        while True:
            os.write(descriptor, b"x" * 4096)
    os.close(descriptor)
    for number in range(40):
        agent.order(f"trip {number}")
    assert agent.answer("page"), "callers know at once, whatever the disk says"
    with pytest.raises(AssertionError):
        until(lambda: len(receiver.deliveries) > 0, "no delivery without a notifier", seconds=0.3)
    filler.unlink()
    assert agent.answer("committed")
    for _ in range(39):
        assert agent.answer("page") and agent.answer("committed")
    start_notifier({"hook": receiver.port})
    until(lambda: receiver.totals()["verified"] == 41, "every event after the disk had room again")
