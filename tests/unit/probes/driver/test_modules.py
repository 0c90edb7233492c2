# SPDX-License-Identifier: Apache-2.0
"""A driver that is loaded after the agent's start brings its events; those that were there go on."""

from __future__ import annotations

import pytest

from hotstage.probes.driver import watch as driver_watch
from hotstage.probes.driver.modules import Modules
from hotstage.probes.driver.pieces import Attached
from hotstage.probes.driver.report import EventState
from hotstage.probes.driver.watch import LOOK_SECONDS, DriverWatch

VGEM = "vgem 16384 1 - Live 0xffffffffc0a00000\n"
COMING = "amdgpu 9000000 0 - Loading 0xffffffffc0b00000\n"
LIVE = COMING.replace("Loading", "Live")
LAYOUT = "\tfield:unsigned int ring;\toffset:8;\tsize:4;\tsigned:0;\n"
EARLY, LATE = "oom:mark_victim", "amdgpu:amdgpu_cs_ioctl"


class Piece:
    """Events that are attached as long as it is open."""

    def __init__(self, events):
        self.events, self.is_open = tuple(events), True

    def set_slow_ioctl(self, slow_ns): ...

    def read(self, name): ...

    def hits(self):
        return {event.event: (3, 0) for event in self.events}

    def lost(self):
        return 0

    def close(self):
        self.is_open = False


def test_only_a_live_module_that_was_not_there_counts(tmp_path):
    modules = Modules(tmp_path)
    assert not modules.has_grown()
    (tmp_path / "modules").write_text(VGEM)
    assert modules.has_grown()
    assert not modules.has_grown()
    (tmp_path / "modules").write_text(VGEM + COMING)
    assert not modules.has_grown()
    (tmp_path / "modules").write_text(LIVE + VGEM.replace(" 1 ", " 2 "))
    assert modules.has_grown()
    (tmp_path / "modules").write_text(VGEM)
    assert not modules.has_grown()


@pytest.fixture
def host(monkeypatch):
    """(what tracefs has, the pieces that were attached)."""
    layouts, pieces = {EARLY: LAYOUT.replace("ring", "pid")}, []

    def attach(choice, layouts, objects, limits):
        pieces.append(Piece(choice.chosen))
        return Attached((pieces[-1],), choice.reasons)

    monkeypatch.setattr(driver_watch, "HOUSE_SECONDS", 60)  # its thread opens and then leaves it to the test
    monkeypatch.setattr(driver_watch, "read_layouts", lambda events: {e: layouts.get(e) for e in events})
    monkeypatch.setattr(driver_watch, "attach", attach)
    return layouts, pieces


def test_a_late_driver_is_attached_beside_what_was_there(host, tmp_path, clock):
    layouts, pieces = host
    (tmp_path / "modules").write_text(VGEM)
    watch = DriverWatch(clock, list, proc_root=tmp_path)
    watch.start()
    assert watch.wait(10) == "watching"
    before = {event.event: event for event in watch.report(None).events}
    assert before[EARLY].state is EventState.ATTACHED
    assert before[LATE].state is EventState.ABSENT

    layouts[LATE] = LAYOUT
    clock.advance(LOOK_SECONDS + 1)
    watch.look_for_drivers()
    assert len(pieces) == 1  # no module has come
    (tmp_path / "modules").write_text(VGEM + LIVE)
    clock.advance(LOOK_SECONDS + 1)
    watch.look_for_drivers()
    report = watch.report(None)
    events = {event.event: event for event in report.events}
    watch.close()
    assert [len(piece.events) for piece in pieces] == [1, 1]
    assert events[LATE].state is EventState.ATTACHED
    assert events[EARLY] == before[EARLY]  # its counts and its beginning are what they were
    assert events[LATE].since_ns > events[EARLY].since_ns
    assert report.queue_submit.through == LATE
    assert not any(piece.is_open for piece in pieces)
