# SPDX-License-Identifier: Apache-2.0
"""The body that Alertmanager itself posts (version 4), for receivers that were made for it:
https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from hotstage.notify.db import HeldEvent
from hotstage.notify.formats.alert import Alert, alert_of, fingerprint
from hotstage.notify.formats.context import Context
from hotstage.notify.formats.envelope import Envelope
from hotstage.notify.formats.story import tell

CONTENT_TYPE = "application/json"

_NEVER = "0001-01-01T00:00:00Z"


def render(event: HeldEvent, envelope: Envelope, context: Context) -> bytes:
    """One event by itself, with nothing known of what came before it."""
    story = tell(event, envelope, context.host)
    alert = alert_of(story, story, context.explorer_url)
    return encode(alert, None if story.is_firing is not False else story.ended_at or envelope.time)


def encode(alert: Alert, ended_at: str | None, over: Alert | None = None) -> bytes:
    """One alert, a group of its own; `ended_at` None: it fires. `over`: the one that it replaces."""
    link = alert.generator_url or ""
    alerts = [_entry(alert, ended_at)]
    labels, annotations = alert.labels, alert.annotations
    if over is not None:
        alerts.insert(0, _entry(over, alert.starts_at))
        labels = _common(over.labels, labels)
        annotations = _common(over.annotations, annotations)
    group = ", ".join(f"{name}={json.dumps(value)}" for name, value in sorted(labels.items()))
    body: dict[str, Any] = {
        "version": "4",
        "groupKey": f"{{}}:{{{group}}}",
        "truncatedAlerts": 0,
        "status": alerts[-1]["status"],
        "receiver": "hotstage",
        "groupLabels": labels,
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": link,
        "alerts": alerts,
    }
    return msgspec.json.encode(body)


def _entry(alert: Alert, ended_at: str | None) -> dict[str, Any]:
    return {
        "status": "firing" if ended_at is None else "resolved",
        "labels": alert.labels,
        "annotations": alert.annotations,
        "startsAt": alert.starts_at or _NEVER,
        "endsAt": ended_at or _NEVER,
        "generatorURL": alert.generator_url or "",
        "fingerprint": fingerprint(alert.labels),
    }


def _common(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in one.items() if other.get(name) == value}
