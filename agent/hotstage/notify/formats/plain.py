# SPDX-License-Identifier: Apache-2.0
"""The event as flat JSON with a sentence in it, for scripts and for receivers that know no format of ours."""

from __future__ import annotations

import msgspec

from hotstage.notify.db import HeldEvent
from hotstage.notify.formats.context import Context
from hotstage.notify.formats.envelope import Envelope
from hotstage.notify.formats.story import tell

CONTENT_TYPE = "application/json"

_PARTS = ("stage", "modality", "endpoint", "instance_id", "gpu_uuid", "pid")


def render(event: HeldEvent, envelope: Envelope, context: Context) -> bytes:
    """Every key is always there, null where it does not apply; all values are strings, numbers or booleans.

    `sequence` grows with each event of a host, so that a receiver can drop what comes late.
    """
    story = tell(event, envelope, context.host)
    return msgspec.json.encode(
        {
            "text": f"{story.title}. {story.text}",
            "id": event.id,
            "type": event.type,
            "status": story.status,
            "severity": story.severity,
            "kind": story.kind,
            "host": story.host,
            **{part: story.parts.get(part) for part in _PARTS},
            "breaker": story.breaker,
            "enforced": story.enforced,
            "reason": story.reason,
            "actor": story.actor,
            "window_id": story.window_id,
            "cause": story.cause,
            "cause_confidence": story.cause_confidence,
            "started_at": story.started_at,
            "ended_at": story.ended_at,
            "time": envelope.time,
            "time_ns": event.created_ns,
            "sequence": event.seq,
            "subject": event.subject,
            "source": envelope.source,
            "link": context.explorer_url,
        }
    )
