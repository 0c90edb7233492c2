# SPDX-License-Identifier: Apache-2.0
"""Event → request body, one format a module; no format sees a secret."""

from __future__ import annotations

from hotstage.notify.db import HeldEvent
from hotstage.notify.formats import cloudevents, plain
from hotstage.notify.formats.envelope import open_body

FORMATS = {"cloudevents": cloudevents, "plain": plain}


def render(name: str, event: HeldEvent) -> tuple[str, bytes]:
    """(content type, body) of `event`.

    KeyError for no such format; msgspec.DecodeError for a foreign body.
    """
    chosen = FORMATS[name]
    return chosen.CONTENT_TYPE, chosen.render(event, open_body(event.body))
