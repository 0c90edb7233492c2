# SPDX-License-Identifier: Apache-2.0
"""Event → request body, one format a module; no format sees a secret."""

from __future__ import annotations

from hotstage.notify.db import HeldEvent
from hotstage.notify.formats import alertmanager, alertmanager_webhook, cloudevents, plain, slack
from hotstage.notify.formats.context import Context
from hotstage.notify.formats.envelope import open_body

FORMATS = {
    "cloudevents": cloudevents,
    "plain": plain,
    "slack": slack,
    "alertmanager": alertmanager,
    "alertmanager_webhook": alertmanager_webhook,
}
ALERTING = frozenset({"alertmanager", "alertmanager_webhook"})
"""Formats that tell of alerts, which begin and end, rather than of events."""


def render(name: str, event: HeldEvent, context: Context) -> tuple[str, bytes]:
    """(content type, body) of `event` by itself.

    KeyError for no such format; msgspec.DecodeError for a foreign body.
    """
    chosen = FORMATS[name]
    return chosen.CONTENT_TYPE, chosen.render(event, open_body(event.body), context)
