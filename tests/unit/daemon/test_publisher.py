# SPDX-License-Identifier: Apache-2.0
"""A change reaches the page at once, the database together with its events; listeners hear of it then."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotstage.breaker.page import BreakerPage
from hotstage.clock import boot_id
from hotstage.config.settings import PageConfig, StoreConfig
from hotstage.daemon.publisher import Publisher
from hotstage.sinks.events import EventMaker
from hotstage.store import outbox, snapshots, windows
from hotstage.store.store import Store
from hotstage.windows.window import WindowUpdate
from hotstage_marks.breakers import BreakerPage as Reader


@pytest.fixture
def store(tmp_path: Path, clock):
    opened = Store(tmp_path / "state", clock, boot_id())
    opened.begin_run(lambda stored: pytest.fail("nothing was open before"))
    yield opened
    opened.close()


@pytest.fixture
def publisher(tmp_path: Path, clock, store: Store):
    page = BreakerPage(tmp_path / "breakers", boot_id(), 5_000_000_000)
    made = Publisher(
        store, page, EventMaker("host-1"), clock, store_config=StoreConfig(), page_config=PageConfig()
    )
    made.start()
    yield made
    made.close()


def test_window_breaker_event_and_snapshot_are_written_together(publisher, store, make):
    window, move = make.window(), make.transition()
    seen = publisher.outbox_bell.count
    publisher.changes(
        7_000,
        WindowUpdate(opened=(window,), open=(window,)),
        (move,),
        (make.breaker(),),
        lambda: {"requests": []},
    )
    assert publisher.outbox_bell.wait(seen, 5.0), "waited 5 s in vain for the commit"
    rows = outbox.after(store.database, 0, 10)
    assert [row.event.type for row in rows] == [
        "io.hotstage.window.opened.v1",
        "io.hotstage.breaker.opened.v1",
    ]
    stored = windows.load(store.database, window.id)
    assert stored is not None
    assert stored.window.kind == "stage_latency"
    kept = snapshots.load(store.database, window.id)
    assert kept is not None
    assert kept.body == b'{"requests":[]}'


def test_no_snapshot_is_taken_when_no_window_opens(publisher, make):
    publisher.changes(
        7_000,
        WindowUpdate(),
        (make.transition(),),
        (make.breaker(),),
        lambda: pytest.fail("no window opened"),
    )


def test_the_page_tells_callers_at_once(publisher, tmp_path: Path, clock, make):
    publisher.page((make.breaker(enforced=True),), clock.monotonic_ns())
    breaker = Reader(str(tmp_path / "breakers")).get("stage:vision_encode:image")
    assert breaker is not None
    assert breaker.state == "open"


def test_what_could_not_be_written_is_counted_at_the_end(publisher):
    assert publisher.close() == 0
