# SPDX-License-Identifier: Apache-2.0
"""CloudEvents 1.0, structured mode: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-
format.md
"""

from __future__ import annotations

import msgspec

from hotstage.notify.db import HeldEvent
from hotstage.notify.formats.context import Context
from hotstage.notify.formats.envelope import Envelope

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"


def render(event: HeldEvent, envelope: Envelope, context: Context) -> bytes:
    """`sequence` grows with each event of a host, so that a receiver can drop what comes late."""
    attributes = {
        "specversion": "1.0",
        "id": event.id,
        "source": envelope.source,
        "type": event.type,
        "subject": event.subject,
        "time": envelope.time,
        "datacontenttype": "application/json",
        "sequence": str(event.seq),
        # A string: a CloudEvents integer has 32 bits.
        "createdns": str(event.created_ns),
    }
    if envelope.traceparent is not None:
        attributes["traceparent"] = envelope.traceparent
    return msgspec.json.encode({**attributes, "data": envelope.data})
