# SPDX-License-Identifier: Apache-2.0
"""Labels are few and stay, so that opening and close are one alert."""

from __future__ import annotations

import json

from hotstage.detect.finding import Severity
from hotstage.frame.entity import Entity, EntityKind
from hotstage.notify import formats
from hotstage.notify.db import HeldEvent
from hotstage.notify.formats.alert import alert_of, fingerprint, labels_of
from hotstage.notify.formats.context import Context
from hotstage.notify.formats.envelope import open_body
from hotstage.notify.formats.story import tell
from hotstage.sinks.events import EventMaker

HERE = Context("gpu-7", sent_ns=1_000_000_000_000_000_000, resend_seconds=30)


def held(event):
    return HeldEvent(7, event.id, event.type, event.subject, event.created_ns, event.body)


def story(event):
    return tell(held(event), open_body(event.body), "gpu-7")


def test_the_labels_of_a_window(make):
    entity = Entity(EntityKind.route, endpoint="/v1/chat", instance="i-0", gpu_uuid="GPU-1", pid=42)
    window = make.window(entity=entity, labels={"team": "vision", "host": "forged", "bad-name": "x"})
    assert labels_of(story(EventMaker("h").window_opened(window, 0))) == {
        "alertname": "HotstageWindowOpen",
        "severity": "warning",
        "kind": "stage_latency",
        "host": "gpu-7",
        "endpoint": "/v1/chat",
        "instance_id": "i-0",
        "gpu_uuid": "GPU-1",
        "pid": "42",
        "team": "vision",
    }


def test_an_enforced_breaker_is_critical_and_a_dry_run_a_warning(make):
    maker = EventMaker("h")
    for enforced, severity in ((True, "critical"), (False, "warning")):
        labels = labels_of(story(maker.transition(make.transition(enforced=enforced), 0)))
        assert (labels["alertname"], labels["severity"]) == ("HotstageBreakerOpen", severity)
        assert labels["breaker"] == "stage:vision_encode:image"


def test_a_trouble_keeps_its_labels_whatever_became_of_its_cause(make):
    maker = EventMaker("h")
    first = story(maker.window_opened(make.window(), 0))
    later = make.window(kind="gpu_lost", severity=Severity.critical, entity=Entity(EntityKind.host))
    now = story(maker.window_closed(later, 0))
    alert = alert_of(first, now, None)
    assert alert.labels == labels_of(first)
    assert alert.annotations["summary"] == "Over: gpu_lost, the host"


def test_labels_are_bounded_in_number_and_length(make):
    window = make.window(labels={f"l{n:02}": "x" * 1000 for n in range(100)})
    labels = labels_of(story(EventMaker("h").window_opened(window, 0)))
    assert len(labels) == 6 + 16
    assert max(len(value) for value in labels.values()) == 256


def test_the_body_for_alertmanager_ends_by_itself_unless_told_again(make):
    body = json.loads(
        formats.render("alertmanager", held(EventMaker("h").window_opened(make.window(), 0)), HERE)[1]
    )
    (alert,) = body
    assert alert["endsAt"] == "2001-09-09T01:48:40.000Z", "four times 30 s after it is sent"
    assert set(alert) == {"labels", "annotations", "startsAt", "endsAt"}
    assert "hotstage windows" in alert["annotations"]["runbook"]


def test_a_resolved_alert_never_ends_before_it_starts(make):
    window = make.window(opened_ns=9_000_000_000, closed_ns=1_000_000_000)
    (alert,) = json.loads(
        formats.render("alertmanager", held(EventMaker("h").window_closed(window, 0)), HERE)[1]
    )
    assert alert["startsAt"] <= alert["endsAt"]


def test_the_version_4_body_has_the_fields_that_its_receivers_read(make):
    opened = EventMaker("h").window_opened(make.window(), 0)
    body = json.loads(formats.render("alertmanager_webhook", held(opened), HERE)[1])
    assert (body["version"], body["status"], body["truncatedAlerts"]) == ("4", "firing", 0)
    assert body["groupKey"].startswith('{}:{alertname="HotstageWindowOpen", host="gpu-7"')
    (alert,) = body["alerts"]
    assert alert["endsAt"] == "0001-01-01T00:00:00Z"
    assert alert["fingerprint"] == fingerprint(alert["labels"])
    closed = EventMaker("h").window_closed(make.window(closed_ns=9_000_000_000), 0)
    body = json.loads(formats.render("alertmanager_webhook", held(closed), HERE)[1])
    assert (body["status"], body["alerts"][0]["endsAt"]) == ("resolved", "1970-01-01T00:00:09.000Z")


def test_the_fingerprint_is_alertmanagers():
    # Of Alertmanager 0.25 for these labels; the integration test compares more.
    assert fingerprint({}) == "cbf29ce484222325"
