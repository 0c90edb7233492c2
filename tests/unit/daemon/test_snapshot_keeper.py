# SPDX-License-Identifier: Apache-2.0
"""Snapshots are made and stored beside the tick; what goes wrong with one is counted and holds nobody up."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from hotstage.clock import boot_id
from hotstage.config.snapshots import SnapshotsConfig
from hotstage.daemon import snapshot_keeper
from hotstage.daemon.snapshot_keeper import SnapshotKeeper
from hotstage.stages.snapshot_types import Snapshot
from hotstage.store import snapshots
from hotstage.store.snapshots import SnapshotCause
from hotstage.store.store import Store

CAUSES = (SnapshotCause("breaker", "host", None),)


def empty():
    return Snapshot("1970-01-01T00:00:00.000Z", 0, 0, [], 0, [], 0, 3, {})


@pytest.fixture
def store(tmp_path: Path, clock):
    opened = Store(tmp_path / "state", clock, boot_id())
    yield opened
    opened.close()


@pytest.fixture
def keeper(store, clock):
    made = SnapshotKeeper(store, clock, SnapshotsConfig(keep_max=3))
    made.start()
    yield made
    made.stop(5.0)


def until(condition, what):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, f"waited 5 s for {what}"
        time.sleep(0.005)


def test_what_is_handed_over_is_stored_with_its_counts_and_within_the_limits(keeper, store, clock):
    ids = []
    for number in range(5):
        ids.append(keeper.keep(CAUSES, clock.wall_ns() + number, empty))
        until(lambda number=number: keeper.state().stored_total == number + 1, "the snapshot to be stored")
    rows = snapshots.newest(store.database, 9)
    assert [row.id for row in rows] == ids[:1:-1]
    assert (rows[0].unclean, rows[0].causes) == (3, CAUSES)


def test_handing_over_does_not_wait_for_the_making(keeper):
    goes_on = threading.Event()

    def slow():
        assert goes_on.wait(5.0), "waited 5 s for the tick to go on"
        return empty()

    began = time.monotonic()
    assert keeper.keep(CAUSES, 1, slow) is not None
    assert time.monotonic() - began < 1.0
    goes_on.set()
    until(lambda: keeper.state().stored_total == 1, "the slow one")


def test_more_than_can_wait_are_refused_and_counted(store, clock):
    idle = SnapshotKeeper(store, clock, SnapshotsConfig())
    kept = [idle.keep(CAUSES, number, empty) for number in range(snapshot_keeper.WAITING_MAX + 2)]
    assert kept[-2:] == [None, None]
    assert (idle.state().lost_total, idle.state().waiting) == (2, snapshot_keeper.WAITING_MAX)


def test_one_that_cannot_be_made_is_counted_and_the_next_is_stored(keeper, caplog):
    keeper.keep(CAUSES, 1, lambda: 1 / 0)
    keeper.keep(CAUSES, 2, empty)
    until(lambda: keeper.state().stored_total == 1, "the next snapshot")
    assert keeper.state().lost_total == 1
    assert "could not be made" in caplog.text


def test_what_the_disk_refuses_waits_for_it_and_is_stored_then(keeper, store, monkeypatch, caplog):
    monkeypatch.setattr(snapshot_keeper, "RETRY_SECONDS", 0.01)
    ((pages,),) = store.database.maintain("PRAGMA page_count")
    store.database.maintain(f"PRAGMA max_page_count = {pages}")

    def large():
        return Snapshot("x", 0, 0, [], 0, [], 0, 0, {f"{n:x}": n * 7919 for n in range(30_000)})

    keeper.keep(CAUSES, 1, large)
    until(lambda: keeper.state().error is not None, "the disk's refusal")
    assert (keeper.state().waiting, keeper.state().stored_total) == (1, 0)
    store.database.maintain("PRAGMA max_page_count = 1000000")
    until(lambda: keeper.state().stored_total == 1, "the disk to take it")
    assert (keeper.state().error, keeper.state().lost_total) == (None, 0)


def test_what_is_left_at_the_end_is_counted(store, clock):
    keeper = SnapshotKeeper(store, clock, SnapshotsConfig())
    ((pages,),) = store.database.maintain("PRAGMA page_count")
    store.database.maintain(f"PRAGMA max_page_count = {pages}")
    keeper.start()
    keeper.keep(
        CAUSES, 1, lambda: Snapshot("x", 0, 0, [], 0, [], 0, 0, {f"{n:x}": n * 7919 for n in range(30_000)})
    )
    keeper.stop(5.0)
    assert keeper.state().lost_total == 1
