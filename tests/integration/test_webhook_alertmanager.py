# SPDX-License-Identifier: Apache-2.0
"""A real Alertmanager is told by a real notifier: what opens shows there, what closes is resolved there."""

from __future__ import annotations

import json
import time

import pytest
from support.monitoring import alertmanager

from hotstage.config.notify import Destination, NotifyConfig
from hotstage.notify.formats.alert import fingerprint

CONFIG = {"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]}


@pytest.fixture
def server(tmp_path):
    with alertmanager(tmp_path, CONFIG) as running:
        yield running


def test_opened_shows_survives_a_restart_of_both_and_closed_resolves(
    server, start_agent, start_notifier_on, until, tmp_path
):
    agent = start_agent()
    config = NotifyConfig(
        agent_socket=str(tmp_path / "agent" / "agent.sock"),
        directory=str(tmp_path / "notify"),
        retry_base_seconds=0.05,
        retry_max_seconds=0.2,
        host="gpu-7",
        destinations=[
            Destination(name="am", url=server.url, format="alertmanager", resend_seconds=0.5),
        ],
    )
    notifier = start_notifier_on(config)

    def active():
        return {each["labels"]["alertname"]: each for each in server.get("/api/v2/alerts")}

    agent.order("open w-1")
    assert agent.answer("committed")
    assert agent.trip("a")
    until(lambda: set(active()) == {"HotstageWindowOpen", "HotstageBreakerOpen"}, "both alerts")
    window = active()["HotstageWindowOpen"]
    assert window["labels"] == {
        "alertname": "HotstageWindowOpen", "severity": "warning", "kind": "stage_latency", "host": "gpu-7",
        "stage": "vision_encode", "modality": "image",
    }  # fmt: skip
    for each in active().values():
        assert each["fingerprint"] == fingerprint(each["labels"]), "Alertmanager's own arithmetic"
    assert set(window["annotations"]) >= {"summary", "description", "runbook"}

    # It is told again in time: long after its end, had it not been.
    until(
        lambda: active()["HotstageWindowOpen"]["updatedAt"] > window["endsAt"], "the alert outliving its end"
    )

    notifier.kill()
    notifier.wait(10)
    agent.order("close w-1")
    assert agent.answer("committed")
    start_notifier_on(config)
    until(lambda: "HotstageWindowOpen" not in active(), "the window's end after a restart of the notifier")
    assert "HotstageBreakerOpen" in active(), "what still fires goes on"
    assert agent.trip("a")
    until(lambda: active() == {}, "the breaker's end")
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        assert active() == {}, "nothing that is over comes back"
        time.sleep(0.1)


def test_what_we_send_as_version_4_is_what_alertmanager_itself_sends(tmp_path, until):
    """Same fields, same fingerprint, same group status: compared with a body from the real one."""
    from support.receivers import RawReceiver

    from hotstage.clock import SystemClock
    from hotstage.notify.db import HeldEvent
    from hotstage.notify.destinations import Target
    from hotstage.notify.process import send_test
    from hotstage.sinks.events import EventMaker

    with RawReceiver() as receiver:
        route = {"receiver": "hook", "group_wait": "0s", "group_interval": "1s", "group_by": ["..."]}
        hook = {"url": receiver.url, "send_resolved": True}
        config = {"route": route, "receivers": [{"name": "hook", "webhook_configs": [hook]}]}
        with alertmanager(tmp_path, config) as server:
            event = EventMaker("h").test(SystemClock().wall_ns(), "x")
            held = HeldEvent(1, event.id, event.type, event.subject, event.created_ns, event.body)
            settings = NotifyConfig(host="gpu-7")
            for name, url in (("alertmanager", server.url), ("alertmanager_webhook", receiver.url)):
                target = Target.of(Destination(name=name, url=url, format=name), {})
                assert send_test(settings, target, held).kind == "delivered"
            until(lambda: len(receiver.requests) == 2, "the body of the real one")
    ours, theirs = sorted(
        (each.json for each in receiver.requests), key=lambda body: body["receiver"] != "hotstage"
    )
    assert ours["receiver"] == "hotstage", json.dumps(ours)
    assert set(theirs) - set(ours) <= {"notification_reason"}
    assert set(ours["alerts"][0]) == set(theirs["alerts"][0])
    for key in ("version", "status", "truncatedAlerts", "groupLabels", "commonLabels", "groupKey"):
        assert ours[key] == theirs[key], key
    for key in ("status", "labels", "annotations", "fingerprint"):
        assert ours["alerts"][0][key] == theirs["alerts"][0][key], key
