# SPDX-License-Identifier: Apache-2.0
"""A clock that jumps makes nothing old."""

from __future__ import annotations

import threading

import pytest

from hotstage.clock import boot_id
from hotstage.config.settings import StoreConfig
from hotstage.daemon.retention import Retention
from hotstage.store import outbox
from hotstage.store.store import Changes, Store

DAY = 86_400


@pytest.fixture
def store(tmp_path, clock):
    opened = Store(tmp_path / "state", clock, boot_id())
    opened.begin_run(lambda stored: pytest.fail("nothing was open before"))
    yield opened
    opened.close()


def kept(store):
    return len(outbox.after(store.database, 0, 10))


@pytest.mark.parametrize(("jump_days", "passed_days", "left"), [(4, 0, 1), (4, 1, 1), (0, 4, 0), (-9, 4, 1)])
def test_an_event_expires_when_its_time_has_passed_not_when_the_clock_jumps(
    store, clock, make, monkeypatch, jump_days, passed_days, left
):
    expired = []
    retention = Retention(store.database, StoreConfig(), clock, threading.Event(), expired.append)
    store.commit(
        [Changes(clock.now_ns, clock.WALL_OFFSET_NS, (), (), (), (make.event(created_ns=clock.wall_ns()),))]
    )
    assert kept(store) == 1
    clock.advance(passed_days * DAY)
    monkeypatch.setattr(type(clock), "WALL_OFFSET_NS", clock.WALL_OFFSET_NS + jump_days * DAY * 10**9)
    retention.prune()
    assert kept(store) == left
    assert expired == [1 - left]
