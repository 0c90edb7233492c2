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


def encode(alert: Alert, ended_at: str | None) -> bytes:
    """One alert, a group of its own; `ended_at` None: it fires."""
    status = "firing" if ended_at is None else "resolved"
    link = alert.generator_url or ""
    group = ", ".join(f"{name}={json.dumps(value)}" for name, value in sorted(alert.labels.items()))
    body: dict[str, Any] = {
        "version": "4",
        "groupKey": f"{{}}:{{{group}}}",
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "hotstage",
        "groupLabels": alert.labels,
        "commonLabels": alert.labels,
        "commonAnnotations": alert.annotations,
        "externalURL": link,
        "alerts": [
            {
                "status": status,
                "labels": alert.labels,
                "annotations": alert.annotations,
                "startsAt": alert.starts_at or _NEVER,
                "endsAt": ended_at or _NEVER,
                "generatorURL": link,
                "fingerprint": fingerprint(alert.labels),
            }
        ],
    }
    return msgspec.json.encode(body)
