# SPDX-License-Identifier: Apache-2.0
"""An alert as Alertmanager knows it: labels that stay the same from opening to close, words that may change.

Labels name a thing and are few: two events of one trouble make one alert, whatever became of its cause since.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from hotstage.notify.formats.story import Story

WINDOW_ALERT = "HotstageWindowOpen"
BREAKER_ALERT = "HotstageBreakerOpen"
SWITCH_ALERT = "HotstageProbesOff"
TEST_ALERT = "HotstageTest"

_NAMES = {
    "window": WINDOW_ALERT,
    "breaker": BREAKER_ALERT,
    "switch": SWITCH_ALERT,
    "test": TEST_ALERT,
    "other": "HotstageEvent",
}
_PARTS = ("stage", "modality", "endpoint", "instance_id", "gpu_uuid", "pid")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_MAX_OWN_LABELS = 16
_MAX_VALUE = 256
_RUNBOOKS = {
    "window": "`hotstage windows` on the host shows the cause, `hotstage snapshot` what is in flight",
    "breaker": "`hotstage breakers history` on the host tells why; `hotstage breakers disable NAME --ttl 10m`"
    " keeps it closed",
    "switch": "`hotstage probes` on the host tells who and why; `hotstage probes on` brings them back",
}
_FNV_OFFSET, _FNV_PRIME, _U64 = 14695981039346656037, 1099511628211, (1 << 64) - 1


class Alert(Struct, frozen=True, rename="camel", omit_defaults=True):
    """JSON as `POST /api/v2/alerts` takes it; times are RFC 3339."""

    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: str | None = None
    ends_at: str | None = None
    generator_url: str | None = msgspec.field(default=None, name="generatorURL")


def alert_of(first: Story, now: Story, link: str | None) -> Alert:
    """The alert of a trouble that began with `first` and stands as `now` says; no end is set."""
    return Alert(
        labels=labels_of(first),
        annotations=_annotations(now),
        starts_at=first.started_at or now.started_at,
        generator_url=link,
    )


def labels_of(story: Story) -> dict[str, str]:
    """Bounded: fixed names, the entity's parts, and what the rule that fired was labelled with."""
    own = {
        "alertname": _NAMES[story.topic],
        "severity": story.severity or "info",
        "kind": story.kind,
        "breaker": story.breaker,
        "host": story.host,
        **{part: story.parts.get(part) for part in _PARTS},
    }
    allowed = [name for name in sorted(story.labels) if _LABEL.fullmatch(name) and name not in own]
    labels = {name: story.labels[name] for name in allowed[:_MAX_OWN_LABELS]} | own
    # An empty value is no label to Alertmanager.
    return {name: value[:_MAX_VALUE] for name, value in sorted(labels.items()) if value}


def fingerprint(labels: Mapping[str, str]) -> str:
    """Alertmanager's own: FNV-1a over the sorted labels (prometheus/common, model/fnv.go, signature.go)."""
    found = _FNV_OFFSET
    for name in sorted(labels):
        # 255 cannot occur in UTF-8, so that it ends a name or value for certain.
        for byte in name.encode() + b"\xff" + labels[name].encode() + b"\xff":
            found = ((found ^ byte) * _FNV_PRIME) & _U64
    return f"{found:016x}"


def _annotations(story: Story) -> dict[str, str]:
    found = {
        "summary": story.title,
        "description": story.text,
        "runbook": _RUNBOOKS.get(story.topic),
        "window_id": story.window_id,
        "status": story.status,
        "enforced": None if story.enforced is None else str(story.enforced).lower(),
    }
    return {name: value for name, value in found.items() if value}
