# SPDX-License-Identifier: Apache-2.0
"""Moves of the kill switch are kept with who and why, newest first, until they are old."""

from __future__ import annotations

from hotstage.store import switches
from hotstage.store.retention import prune
from hotstage.store.store import Changes
from hotstage.store.switches import SwitchMove

OFF, ON = SwitchMove(7_000, "off", "uid 0 (root)", "an update"), SwitchMove(90_000, "on", "a signal", None)


def test_moves_come_back_newest_first_and_no_more_than_asked(store):
    store.commit([Changes(0, 0, switches=(OFF,)), Changes(0, 0, switches=(ON,))])
    assert switches.newest(store.database, 9) == [ON, OFF]
    assert switches.newest(store.database, 1) == [ON]


def test_old_moves_go(store):
    store.commit([Changes(0, 0, switches=(OFF, ON))])
    prune(store.database, 100_000, 50_000, 1 << 40)
    assert switches.newest(store.database, 9) == [ON]
