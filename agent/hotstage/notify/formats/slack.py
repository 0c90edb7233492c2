# SPDX-License-Identifier: Apache-2.0
"""A message for Slack's incoming webhooks: https://api.slack.com/messaging/webhooks

Names come from programs that nobody vouches for. They go into `plain_text` only, which knows no markup, and
are escaped there as well; the one `mrkdwn` text is the operator's own link.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from hotstage.notify.db import HeldEvent
from hotstage.notify.formats.context import Context
from hotstage.notify.formats.envelope import Envelope
from hotstage.notify.formats.story import Story, tell

CONTENT_TYPE = "application/json; charset=utf-8"

# Slack's limits are 150, 3,000, 2,000 and 40,000 characters, counted with the escapes.
_HEADER, _SECTION, _FIELD, _TEXT = 150, 2900, 400, 3900
_MARKS = {"critical": "🔴", "warning": "🟠", "info": "🔵"}
_OVER = "🟢"


def render(event: HeldEvent, envelope: Envelope, context: Context) -> bytes:
    """`text` is what notifications and old clients show; no markup, no names, no links are made of it."""
    story = tell(event, envelope, context.host)
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain(f"{_mark(story)} {story.title}", _HEADER)},
        {"type": "section", "text": _plain(story.text, _SECTION)},
    ]
    facts = _facts(story)
    if facts:
        fields = [_plain(f"{name}: {value}", _FIELD) for name, value in facts]
        blocks.append({"type": "section", "fields": fields})
    if context.explorer_url is not None:
        link = _escaped(quote(context.explorer_url, safe=":/?#[]@!$&'()*+,;=%~"))
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": f"<{link}|Open the explorer>"}})
    blocks.append(
        {"type": "context", "elements": [_plain(f"hotstage · {envelope.time} · {event.id}", _FIELD)]}
    )
    return msgspec.json.encode(
        {
            "text": _cut(_escaped(f"{_mark(story)} {story.title}. {story.text}"), _TEXT),
            "mrkdwn": False,
            "parse": "none",
            "link_names": False,
            "unfurl_links": False,
            "unfurl_media": False,
            "blocks": blocks,
        }
    )


def _facts(story: Story) -> list[tuple[str, str]]:
    """At most ten, Slack's limit."""
    found = {
        "Host": story.host,
        "Severity": story.severity,
        "Stage": story.parts.get("stage"),
        "Modality": story.parts.get("modality"),
        "Endpoint": story.parts.get("endpoint"),
        "Instance": story.parts.get("instance_id"),
        "GPU": story.parts.get("gpu_uuid"),
        "Process": story.parts.get("pid"),
        "Window": story.window_id,
        "By": story.actor,
    }
    return [(name, value) for name, value in found.items() if value is not None]


def _mark(story: Story) -> str:
    if story.is_firing is False:
        return _OVER
    return _MARKS.get(story.severity or "", "⚪")


def _plain(text: str, most: int) -> dict[str, Any]:
    """Slack decodes the three escapes here too; `emoji` false leaves `:name:` as it is."""
    return {"type": "plain_text", "text": _cut(_escaped(text), most), "emoji": False}


def _escaped(text: str) -> str:
    """One line of printable characters, Slack's three control characters escaped."""
    clean = "".join(each if each.isprintable() else " " for each in text)
    return clean.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(escaped: str, most: int) -> str:
    """At most `most` characters, never half of an escape."""
    if len(escaped) <= most:
        return escaped
    kept = escaped[: most - 1]
    begun = kept.rfind("&")
    if begun >= 0 and ";" not in kept[begun:]:
        kept = kept[:begun]
    return kept + "…"
