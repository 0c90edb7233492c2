# SPDX-License-Identifier: Apache-2.0
"""The event as flat JSON, for receivers that know nothing of CloudEvents."""

from __future__ import annotations

import msgspec

from hotstage.notify.db import HeldEvent
from hotstage.notify.formats.envelope import Envelope

CONTENT_TYPE = "application/json"


def render(event: HeldEvent, envelope: Envelope) -> bytes:
    return msgspec.json.encode(
        {
            "id": event.id,
            "type": event.type,
            "subject": event.subject,
            "source": envelope.source,
            "time": envelope.time,
            "time_ns": event.created_ns,
            "sequence": event.seq,
            "data": envelope.data,
        }
    )
