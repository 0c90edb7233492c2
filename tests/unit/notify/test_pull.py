# SPDX-License-Identifier: Apache-2.0
"""Taking events over from an agent's socket: a real API on a real store."""

from __future__ import annotations

import threading
import time

import pytest

from hotstage.api.access import Access
from hotstage.api.bell import Bell
from hotstage.api.overrides import OverrideDesk
from hotstage.api.routes import Api, Router
from hotstage.api.server import ApiServer
from hotstage.api.stream import EventStream
from hotstage.api.view import Sources, ViewCell
from hotstage.clock import SystemClock
from hotstage.config.settings import HttpConfig
from hotstage.errors import PeerError, StoreError
from hotstage.notify.pull import Agent, Puller
from hotstage.store import outbox
from hotstage.store.deliveries import DURATION_EDGES, Deliveries
from hotstage.store.store import Changes, Store


class EdgeAgent:
    """The part of an agent that a notifier sees."""

    def __init__(self, directory, state="state"):
        clock = SystemClock()
        self.socket_path = str(directory / "agent.sock")
        config = HttpConfig(listen="127.0.0.1:0", socket=self.socket_path)
        self.store = Store(directory / state, clock, "boot")
        nothing = Sources(
            dict, dict, lambda *_: {}, lambda *_: {}, lambda _: (b"", ""), dict, lambda: (True, {})
        )
        self.api = Api(
            ViewCell("host-1", clock), nothing, self.store, Access.of(config), clock,
            EventStream(), Bell(), OverrideDesk(), Deliveries(),
        )  # fmt: skip
        self.server = ApiServer(config, Router(self.api))
        self.server.start()

    def emit(self, *events):
        self.store.commit([Changes(1, 1, events=events)])
        self.api.outbox_bell.ring()

    def pending(self):
        return [row.event.id for row in outbox.after(self.store.database, 0, 1000)]

    def stop(self):
        self.api.outbox_bell.close()
        self.server.stop()
        self.store.close()


@pytest.fixture
def agent(tmp_path):
    running = EdgeAgent(tmp_path / "agent")
    yield running
    running.stop()


@pytest.fixture
def puller(agent, box, target):
    box.register({"a": "x", "picky": "y"})
    targets = [target(), target(name="picky", types=["io.hotstage.window."])]
    return Puller(Agent(agent.socket_path), box, targets, SystemClock(), lambda: None)


def test_events_are_held_for_those_who_want_them_and_then_forgotten_by_the_agent(agent, puller, box, make):
    agent.emit(make.event("e1"), make.event("e2", type="io.hotstage.window.opened.v1"))
    assert puller.pull(0) == 2
    assert agent.pending() == ["e1", "e2"], "nothing is forgotten before it is held and acknowledged"
    puller.report()
    assert agent.pending() == []
    assert [counts.pending for counts in box.counts(["a", "picky"])] == [2, 1]
    assert box.next_due("picky").event.id == "e2"


def test_a_body_is_passed_on_byte_for_byte(agent, puller, box, make):
    body = b'{"source":"u","time":"t","data":{"n":1.50,"big":12345678901234567890}}'
    agent.emit(make.event("e1", body=body))
    puller.pull(0)
    assert box.next_due("a").event.body == body


def test_a_crash_between_holding_and_acknowledging_takes_nothing_twice(agent, puller, box, make):
    agent.emit(make.event("e1"))
    puller.pull(0)
    agent.emit(make.event("e2"))
    puller.pull(0)
    assert box.counts(["a"])[0].pending == 2


def test_the_report_shows_how_deliveries_stand(agent, puller, box, make):
    agent.emit(make.event("e1"), make.event("e2"))
    puller.pull(0)
    box.delivered(box.next_due("a"), time.time_ns())
    puller.report()
    first, second = agent.api.deliveries.latest().destinations
    assert (first.name, first.delivered, first.pending) == ("a", 1, 1)
    assert first.oldest_age_seconds >= 0
    assert (second.name, second.pending, second.oldest_age_seconds) == ("picky", 0, None)


def test_a_full_disk_leaves_the_events_with_the_agent(agent, puller, box, make):
    box.database._writer.execute("PRAGMA query_only = ON")
    agent.emit(make.event("e1"))
    with pytest.raises(StoreError):
        puller.pull(0)
    puller.report()
    assert agent.pending() == ["e1"]
    box.database._writer.execute("PRAGMA query_only = OFF")
    assert puller.pull(0) == 1


def test_an_agent_with_a_new_store_is_read_from_its_beginning(agent, puller, box, make, tmp_path):
    agent.emit(*(make.event(f"old{n}") for n in range(5)))
    puller.pull(0)
    puller.report()
    agent.stop()
    (tmp_path / "agent" / "state" / "hotstage.db").unlink()
    fresh = EdgeAgent(tmp_path / "agent")
    agent.stop = fresh.stop
    fresh.emit(make.event("new"))
    assert puller.pull(0) == 1
    puller.report()
    assert fresh.pending() == []
    assert box.counts(["a"])[0].pending == 6


def test_no_agent_is_a_peer_error_with_a_remedy(box, target, tmp_path):
    puller = Puller(Agent(str(tmp_path / "none.sock")), box, [target()], SystemClock(), lambda: None)
    with pytest.raises(PeerError) as caught:
        puller.pull(0)
    assert "start the agent" in caught.value.remedy


def test_a_pull_waits_for_the_first_event(agent, puller, make):
    threading.Timer(0.1, agent.emit, (make.event("late"),)).start()
    began = time.monotonic()
    assert puller.pull(10) == 1
    assert time.monotonic() - began < 5


def test_run_goes_on_when_the_agent_comes_up_and_ends_when_told(box, target, tmp_path, make, caplog):
    caplog.set_level("INFO")
    held = threading.Event()
    path = tmp_path / "agent"
    puller = Puller(Agent(str(path / "agent.sock")), box, [target()], SystemClock(), held.set)
    thread = threading.Thread(target=puller.run)
    thread.start()
    deadline = time.monotonic() + 10
    while "no agent answers" not in caplog.text:
        assert time.monotonic() < deadline, "it did not say within 10 s that no agent answers"
        time.sleep(0.01)
    agent = EdgeAgent(path)
    agent.emit(make.event("e1"))
    assert held.wait(10), "the event was not held within 10 s of the agent starting"
    deadline = time.monotonic() + 10
    while "pulling again" not in caplog.text:
        assert time.monotonic() < deadline, "it did not say within 10 s that it pulls again"
        time.sleep(0.01)
    puller.stop()
    agent.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_an_agent_that_is_a_little_late_is_not_worth_a_warning(box, target, tmp_path, make, caplog):
    held = threading.Event()
    path = tmp_path / "agent"
    puller = Puller(Agent(str(path / "agent.sock")), box, [target()], SystemClock(), held.set)
    thread = threading.Thread(target=puller.run)
    thread.start()
    time.sleep(0.2)
    agent = EdgeAgent(path)
    agent.emit(make.event("e1"))
    assert held.wait(10), "the event was not held within 10 s of the agent starting"
    puller.stop()
    agent.stop()
    thread.join(10)
    assert "no agent answers" not in caplog.text


def test_the_report_carries_what_workers_and_refusals_add(agent, box, target, make):
    box.register({"a": "x"})
    told = {
        "is_refused": True,
        "duration_counts": (1,) * (len(DURATION_EDGES) + 1),
        "duration_sum_seconds": 2.5,
    }
    puller = Puller(
        Agent(agent.socket_path), box, [target()], SystemClock(), lambda: None, lambda counts: told
    )
    puller.report()
    (report,) = agent.api.deliveries.latest().destinations
    assert report.is_refused
    assert (sum(report.duration_counts), report.duration_sum_seconds) == (len(DURATION_EDGES) + 1, 2.5)
