# SPDX-License-Identifier: Apache-2.0
"""Alerts for Alertmanager's `POST /api/v2/alerts`: it takes states, not events, and forgets what it is not
told again. Grouping, silences and routes are its own.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hotstage.clock import rfc3339
from hotstage.notify.db import HeldEvent
from hotstage.notify.formats.alert import Alert, alert_of
from hotstage.notify.formats.context import Context
from hotstage.notify.formats.envelope import Envelope
from hotstage.notify.formats.story import tell

CONTENT_TYPE = "application/json"

_HOLDS = 4
"""An alert lives this many times as long as it takes to be told again: three attempts may fail."""
_TEST_SECONDS = 60.0


def render(event: HeldEvent, envelope: Envelope, context: Context) -> bytes:
    """One event by itself, with nothing known of what came before it."""
    story = tell(event, envelope, context.host)
    alert = alert_of(story, story, context.explorer_url)
    if story.is_firing is None:
        ends_ns = context.sent_ns + round(_TEST_SECONDS * 1e9)
        return encode([msgspec.structs.replace(alert, ends_at=rfc3339(ends_ns))])
    if story.is_firing:
        return encode([held_up(alert, context)])
    return encode([ended(alert, story.ended_at)])


def held_up(alert: Alert, context: Context) -> Alert:
    """The alert as it fires: with an end that is put off each time it is told again, so that Alertmanager's
    own `resolve_timeout` does not matter.
    """
    ends_ns = context.sent_ns + round(context.resend_seconds * _HOLDS * 1e9)
    return msgspec.structs.replace(alert, ends_at=rfc3339(ends_ns))


def ended(alert: Alert, ended_at: str | None) -> Alert:
    """The alert resolved. A start that a stepped clock put behind the end would be refused: it is moved."""
    starts_at = alert.starts_at
    if starts_at is not None and ended_at is not None:
        starts_at = min(starts_at, ended_at)
    return msgspec.structs.replace(alert, starts_at=starts_at, ends_at=ended_at)


def encode(alerts: Iterable[Alert]) -> bytes:
    return msgspec.json.encode(list(alerts))
