# SPDX-License-Identifier: Apache-2.0
"""What an Alertmanager is told: what stands now, again and again, and never what is over."""

from __future__ import annotations

import pytest
from support.receivers import RawReceiver, Reply

from hotstage.breaker.record import BreakerState
from hotstage.config.notify import Destination
from hotstage.detect.finding import Severity
from hotstage.frame.entity import HOST
from hotstage.notify.db import HeldEvent, NotifyDatabase
from hotstage.notify.delivery import RetryPolicy, Worker
from hotstage.notify.destinations import Target
from hotstage.notify.formats.context import Context
from hotstage.notify.post import Limits, Poster
from hotstage.notify.replay import Selection, replay
from hotstage.sinks.events import EventMaker

MAKER = EventMaker("h")
RESEND_SECONDS = 60.0


class Told:
    """A worker on a clock that stands still, its receiver, and what that was told."""

    def __init__(self, tmp_path, clock, receiver, format_name="alertmanager"):
        self.tmp_path, self.clock, self.receiver = tmp_path, clock, receiver
        config = Destination(name="am", url=receiver.url, format=format_name, resend_seconds=RESEND_SECONDS)
        self.target = Target.of(config, {})
        self.seq = 0
        self.start()

    def start(self, targets=("am",)):
        self.box = NotifyDatabase(self.tmp_path / "notify", self.clock)
        self.box.register({name: "x" for name in targets})
        policy = RetryPolicy(base_seconds=1, max_seconds=1, give_up_after_seconds=1e6)
        context = Context("gpu-7")
        self.worker = Worker(self.target, self.box, Poster(Limits(2, 2)), policy, self.clock, context)

    def restart(self, targets=("am",)):
        self.box.close()
        self.start(targets)

    def hold(self, *events, store="store-1"):
        for event in events:
            self.seq += 1
            held = HeldEvent(self.seq, event.id, event.type, event.subject, event.created_ns, event.body)
            self.box.hold(store, [held], [["am"]], self.clock.wall_ns())

    def run(self, seconds=0.0):
        """Everything that is due after a while; the alerts of each request."""
        self.clock.advance(seconds)
        before = len(self.receiver.requests)
        while self.worker.deliver_next():
            pass
        return [request.json for request in self.receiver.requests[before:]]

    def states(self, seconds=0.0):
        """(kind or breaker, whether it fires) of every alert of every request."""
        now = self.clock.wall_ns() + round(seconds * 1e9)
        return [
            (alert["labels"].get("breaker") or alert["labels"]["kind"], alert["endsAt"] > _rfc(now))
            for alerts in self.run(seconds)
            for alert in alerts
        ]


def _rfc(ns):
    from hotstage.clock import rfc3339

    return rfc3339(ns)


@pytest.fixture
def told(tmp_path, clock):
    with RawReceiver() as receiver:
        made = Told(tmp_path, clock, receiver)
        yield made
        made.box.close()


def opened(make, clock, name="w-1", **changed):
    return MAKER.window_opened(
        make.window(name, opened_ns=clock.monotonic_ns(), **changed), clock.WALL_OFFSET_NS
    )


def closed(make, clock, name="w-1", **changed):
    window = make.window(
        name, opened_ns=clock.monotonic_ns() - 10**9, closed_ns=clock.monotonic_ns(), **changed
    )
    return MAKER.window_closed(window, clock.WALL_OFFSET_NS)


def test_what_fires_is_told_again_until_it_is_over(told, make, clock):
    told.hold(opened(make, clock))
    assert told.states() == [("stage_latency", True)]
    assert told.states(RESEND_SECONDS - 1) == []
    assert told.states(1) == [("stage_latency", True)]
    told.hold(closed(make, clock))
    assert told.states() == [("stage_latency", False)]
    assert told.states(10 * RESEND_SECONDS) == []


def test_an_alert_outlives_three_tellings_that_fail(told, make, clock):
    told.hold(opened(make, clock))
    ((alert,),) = told.run()
    assert alert["endsAt"] == _rfc(clock.wall_ns() + round(4 * RESEND_SECONDS * 1e9))
    told.receiver.script = lambda request, before: Reply(503)
    assert len(told.run(RESEND_SECONDS)) == 1
    told.receiver.script = lambda request, before: Reply(200)
    assert told.states(RESEND_SECONDS / 4) == [("stage_latency", True)], "sooner than usual after a failure"


def test_what_fires_is_told_again_on_time_though_the_wall_clock_is_set_back(told, make, clock):
    told.hold(opened(make, clock))
    told.run()
    clock.WALL_OFFSET_NS -= 86_400 * 10**9
    assert len(told.run(RESEND_SECONDS)) == 1


def test_a_restart_goes_on_telling(told, make, clock):
    told.hold(opened(make, clock))
    told.run()
    told.restart()
    assert told.states(RESEND_SECONDS) == [("stage_latency", True)]


def test_labels_and_start_stay_those_of_the_opening(told, make, clock):
    told.hold(opened(make, clock))
    ((began,),) = told.run()
    clock.advance(5)
    told.hold(closed(make, clock, kind="gpu_lost", severity=Severity.critical, entity=HOST))
    ((ended,),) = told.run()
    assert ended["labels"] == began["labels"]
    assert ended["startsAt"] == began["startsAt"]
    assert "gpu_lost" in ended["annotations"]["summary"]


def test_labels_stay_those_of_the_opening_though_that_was_never_delivered(told, make, clock):
    told.hold(opened(make, clock))
    told.receiver.script = lambda request, before: Reply(400 if before == 0 else 200)
    told.run()
    told.hold(closed(make, clock, kind="gpu_lost"))
    ((ended,),) = told.run()
    assert ended["labels"]["kind"] == "stage_latency"


def test_what_was_closed_while_the_receiver_was_down_never_fires(told, make, clock):
    told.receiver.script = lambda request, before: Reply(503)
    told.hold(opened(make, clock))
    told.run()
    clock.advance(1)
    told.hold(closed(make, clock))
    told.receiver.script = lambda request, before: Reply(200)
    assert told.states(1) == [("stage_latency", False), ("stage_latency", False)]


def test_a_close_that_waits_stops_the_telling(told, make, clock):
    told.hold(opened(make, clock))
    told.run()
    told.receiver.script = lambda request, before: Reply(503)
    clock.advance(1)
    told.hold(closed(make, clock))
    told.run()
    told.receiver.script = lambda request, before: Reply(200)
    assert told.states(RESEND_SECONDS) == [("stage_latency", False)]


def test_a_replay_brings_nothing_back_that_is_over(told, make, clock):
    told.hold(opened(make, clock))
    told.run()
    clock.advance(1)
    told.hold(closed(make, clock))
    told.run()
    clock.advance(1)
    replay(told.box.database, ["am"], Selection("since"), clock.wall_ns())
    assert told.states() == [("stage_latency", False), ("stage_latency", False)]
    assert told.states(2 * RESEND_SECONDS) == []


def test_a_close_that_died_ends_the_telling_too(told, make, clock):
    told.hold(opened(make, clock))
    told.run()
    told.receiver.script = lambda request, before: Reply(400)
    told.hold(closed(make, clock))
    assert len(told.run()) == 1
    assert told.run(2 * RESEND_SECONDS) == []
    told.box.prune(clock.wall_ns() + 40 * 86_400 * 10**9)
    assert told.box.database.read("SELECT * FROM standing") == [], "nor does it come back once forgotten"


def test_a_second_trouble_with_the_same_labels_keeps_the_alert_firing(told, make, clock):
    told.hold(opened(make, clock, "w-1"), opened(make, clock, "w-2"))
    told.run()
    told.hold(closed(make, clock, "w-1"))
    assert told.states() == [("stage_latency", True)]
    told.hold(closed(make, clock, "w-2"))
    clock.advance(1)
    assert told.states() == [("stage_latency", False)]


def test_a_breaker_is_one_alert_through_all_its_states(told, make, clock):
    moves = [BreakerState.open, BreakerState.half_open, BreakerState.open, BreakerState.closed]
    seen = []
    for state in moves:
        clock.advance(1)
        move = make.transition("b", to_state=state, at_ns=clock.monotonic_ns())
        told.hold(MAKER.transition(move, clock.WALL_OFFSET_NS))
        seen += told.run()
    labels = [alerts[0]["labels"] for alerts in seen]
    assert len({str(each) for each in labels}) == 1
    assert [alerts[0]["annotations"]["status"] for alerts in seen] == [
        "open", "half_open", "open", "closed",
    ]  # fmt: skip
    assert len({alerts[0]["startsAt"] for alerts in seen}) == 1, "one beginning"
    assert told.run(2 * RESEND_SECONDS) == []


def test_all_that_is_due_goes_in_one_request(told, make, clock):
    told.hold(opened(make, clock, "w-1"), opened(make, clock, "w-2", kind="hang"))
    told.run()
    (alerts,) = told.run(RESEND_SECONDS)
    assert [alert["labels"]["kind"] for alert in alerts] == ["stage_latency", "hang"]


def test_a_new_store_of_the_agent_ends_the_telling_of_what_the_old_one_began(told, make, clock):
    told.hold(opened(make, clock))
    told.run()
    told.seq = 0
    told.hold(opened(make, clock, "w-9", kind="hang"), store="store-2")
    assert told.states() == [("hang", True)]
    assert told.states(RESEND_SECONDS) == [("hang", True)]


def test_a_destination_that_leaves_the_configuration_forgets_its_alerts(told, make, clock):
    told.hold(opened(make, clock))
    told.run()
    told.restart(targets=("other",))
    told.restart()
    assert told.run(RESEND_SECONDS) == []


def test_a_destination_that_wants_no_more_is_told_no_more(told, make, clock):
    told.hold(opened(make, clock))
    told.run()
    told.receiver.script = lambda request, before: Reply(410)
    assert len(told.run(RESEND_SECONDS)) == 1
    assert told.box.counts(["am"])[0].disabled_error
    assert told.run(RESEND_SECONDS) == []
    told.hold(closed(make, clock))
    told.receiver.script = lambda request, before: Reply(200)
    replay(told.box.database, ["am"], Selection("dead"), clock.wall_ns())
    assert told.states() == [("stage_latency", False)]


def test_a_receiver_of_version_4_bodies_hears_each_event_once(tmp_path, make, clock):
    with RawReceiver() as receiver:
        told = Told(tmp_path, clock, receiver, "alertmanager_webhook")
        told.hold(opened(make, clock))
        (firing,) = told.run()
        assert told.run(10 * RESEND_SECONDS) == []
        told.hold(closed(make, clock, kind="gpu_lost"))
        (resolved,) = told.run()
        assert (firing["status"], resolved["status"]) == ("firing", "resolved")
        assert firing["groupKey"] == resolved["groupKey"]
        assert firing["alerts"][0]["fingerprint"] == resolved["alerts"][0]["fingerprint"]
        told.box.close()


def test_authorization_goes_with_what_is_told_again(tmp_path, make, clock):
    (tmp_path / "auth").write_text("s3cr3t")
    with RawReceiver() as receiver:
        told = Told(tmp_path, clock, receiver)
        config = Destination(
            name="am", url=receiver.url, format="alertmanager", authorization_file=str(tmp_path / "auth")
        )
        told.target = Target.of(config, {})
        told.restart()
        told.hold(opened(make, clock))
        told.run()
        told.run(RESEND_SECONDS)
        assert [request.headers["authorization"] for request in receiver.requests] == ["Bearer s3cr3t"] * 2
        told.box.close()


def moved(make, clock, to, **changed):
    transition = make.transition("b", to_state=to, at_ns=clock.monotonic_ns(), **changed)
    return MAKER.transition(transition, clock.WALL_OFFSET_NS)


def severities(told, seconds=0.0):
    """(severity, whether it fires) of every alert that is told now."""
    alerts = [alert for alerts in told.run(seconds) for alert in alerts]
    now = _rfc(told.clock.wall_ns())
    return [(alert["labels"]["severity"], alert["endsAt"] > now) for alert in alerts]


def test_a_trip_of_a_breaker_that_is_open_in_dry_run_becomes_critical_and_a_warning_again_after_it(
    told, make, clock
):
    told.hold(moved(make, clock, BreakerState.open))
    assert severities(told) == [("warning", True)]
    clock.advance(1)
    told.hold(moved(make, clock, BreakerState.forced_open, enforced=True, actor="uid 0"))
    assert severities(told) == [("warning", False), ("critical", True)]
    assert severities(told, RESEND_SECONDS) == [("critical", True)]
    clock.advance(1)
    told.hold(moved(make, clock, BreakerState.open, reason="the override has ended"))
    assert severities(told) == [("critical", False), ("warning", True)]
    told.restart()
    assert severities(told, RESEND_SECONDS) == [("warning", True)]
    clock.advance(1)
    told.hold(moved(make, clock, BreakerState.closed))
    assert severities(told) == [("warning", False)]
    assert severities(told, 10 * RESEND_SECONDS) == []


def test_a_receiver_of_alertmanagers_webhooks_is_told_both_in_one_body(tmp_path, make, clock):
    with RawReceiver() as receiver:
        told = Told(tmp_path, clock, receiver, "alertmanager_webhook")
        told.hold(moved(make, clock, BreakerState.open))
        told.run()
        clock.advance(1)
        told.hold(moved(make, clock, BreakerState.forced_open, enforced=True))
        (body,) = told.run()
        told.box.close()
    entries = [(alert["labels"]["severity"], alert["status"]) for alert in body["alerts"]]
    assert entries == [("warning", "resolved"), ("critical", "firing")]
    assert body["status"] == "firing"
    assert "severity" not in body["commonLabels"] and body["commonLabels"]["breaker"] == "b"
