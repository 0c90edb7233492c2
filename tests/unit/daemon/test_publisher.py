# SPDX-License-Identifier: Apache-2.0
"""A change reaches the page at once, the database together with its events; listeners hear of it then."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hotstage.breaker.page import BreakerPage
from hotstage.breaker.record import BreakerState, Override, OverrideAction
from hotstage.clock import boot_id
from hotstage.config.settings import PageConfig, StoreConfig
from hotstage.daemon.publisher import STEPS_TOLD, Publisher
from hotstage.probes.maps.levels import Level
from hotstage.probes.restraint.governor import Step
from hotstage.probes.restraint.switch import Switch
from hotstage.sinks.events import EventMaker
from hotstage.stages.snapshot_types import Snapshot
from hotstage.store import outbox, snapshots, switches, windows
from hotstage.store.store import Store
from hotstage.windows.window import WindowUpdate
from hotstage_marks.breakers import BreakerPage as Reader

EMPTY = Snapshot("1970-01-01T00:00:00.000Z", 0, 0, [], 0, [], 0, 0, {})


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
        lambda: EMPTY,
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
    publisher.close()
    kept = snapshots.load(store.database, window.id)
    assert kept is not None
    assert msgspec.json.decode(kept.document(), type=Snapshot) == EMPTY
    assert [(cause.kind, cause.name, cause.window_id) for cause in kept.causes] == [
        ("window", window.id, window.id),
        ("breaker", move.name, move.window_id),
    ]
    opened = msgspec.json.decode(rows[1].event.body)["data"]
    assert opened["snapshot"] == f"/v1/snapshots/{kept.id}"


def test_a_breaker_that_opens_by_itself_or_by_hand_has_its_snapshot(publisher, store, make):
    states = (BreakerState.open, BreakerState.forced_open)
    for number, state in enumerate(states):
        move = make.transition(f"b-{number}", to_state=state, window_id=None)
        publisher.changes(7_000 + number, WindowUpdate(), (move,), (make.breaker(),), lambda: EMPTY)
    publisher.close()
    stored = snapshots.newest(store.database, 9)
    assert [cause.name for row in stored for cause in row.causes] == ["b-1", "b-0"]


@pytest.mark.parametrize("state", [BreakerState.closed, BreakerState.half_open, BreakerState.disabled])
def test_no_snapshot_is_taken_when_nothing_opens(publisher, store, make, state):
    move = make.transition(to_state=state)
    publisher.changes(7_000, WindowUpdate(), (move,), (make.breaker(),), lambda: pytest.fail("none opened"))
    publisher.close()
    assert snapshots.newest(store.database, 9) == []
    assert publisher.snapshot_state().lost_total == 0


def test_the_page_tells_callers_at_once(publisher, tmp_path: Path, clock, make):
    publisher.page((make.breaker(enforced=True),), clock.monotonic_ns())
    breaker = Reader(str(tmp_path / "breakers")).get("stage:vision_encode:image")
    assert breaker is not None
    assert breaker.state == "open"


def test_what_could_not_be_written_is_counted_at_the_end(publisher):
    assert publisher.close() == 0


def test_an_override_that_takes_the_place_of_another_is_kept_although_no_state_moves(
    publisher, store, make, clock
):
    def ordered(seconds: int) -> None:
        until_ns = clock.monotonic_ns() + seconds * 1_000_000_000
        order = Override(OverrideAction.force_open, "uid 0", "", clock.monotonic_ns(), until_ns)
        record = make.breaker(override=order, transitions=())
        publisher.changes(clock.monotonic_ns(), WindowUpdate(), (), (record,), lambda: EMPTY)

    ordered(600)
    ordered(60)
    publisher.close()
    (kept,) = store.restored_breakers()
    assert kept.override.until_ns == clock.monotonic_ns() + 60 * 1_000_000_000


def test_a_move_of_the_kill_switch_is_a_row_and_an_event(publisher, store):
    seen = publisher.outbox_bell.count
    publisher.switched(Switch(True, "uid 0 (root)", "an update", 5), "uid 0 (root)")
    assert publisher.outbox_bell.wait(seen, 5.0), "waited 5 s in vain for the commit"
    (move,) = switches.newest(store.database, 9)
    assert (move.state, move.actor, move.reason) == ("off", "uid 0 (root)", "an update")
    assert [row.event.type for row in outbox.after(store.database, 0, 9)] == ["io.hotstage.probes.off.v1"]


def test_steps_of_the_governor_are_events_a_bounded_number_at_once(publisher, store):
    seen = publisher.outbox_bell.count
    publisher.stepped([])
    publisher.stepped([Step(pid, Level.full, Level.tails_only, "dear") for pid in range(1, 100)])
    assert publisher.outbox_bell.wait(seen, 5.0), "waited 5 s in vain for the commit"
    told = [row.event.subject for row in outbox.after(store.database, 0, 999)]
    assert told == [f"probes:{pid}" for pid in range(1, STEPS_TOLD + 1)]
