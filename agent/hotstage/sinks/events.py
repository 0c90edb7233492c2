# SPDX-License-Identifier: Apache-2.0
"""Transitions, windows and what restrains the probes → versioned event bodies for the outbox, written with
the state they tell of. No HTTP.

A body is what every webhook format starts from: `source`, `time` and its `_ns` twin, `traceparent` where one
is known, and `data`. A released type never changes the meaning of a field; a new meaning is a new `.v2` type.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

import msgspec

from hotstage.breaker.record import Transition
from hotstage.clock import rfc3339
from hotstage.detect.finding import Evidence
from hotstage.probes.restraint.governor import Step
from hotstage.store.outbox import Event
from hotstage.store.switches import SwitchMove
from hotstage.windows.window import AnomalyWindow

PREFIX = "io.hotstage."
BREAKER_TYPES = {
    "open": "io.hotstage.breaker.opened.v1",
    "closed": "io.hotstage.breaker.closed.v1",
    "half_open": "io.hotstage.breaker.half_open.v1",
    "forced_open": "io.hotstage.breaker.forced_open.v1",
    "disabled": "io.hotstage.breaker.disabled.v1",
    "metrics_only": "io.hotstage.breaker.metrics_only.v1",
}
WINDOW_OPENED = "io.hotstage.window.opened.v1"
WINDOW_CLOSED = "io.hotstage.window.closed.v1"
PROBES_OFF = "io.hotstage.probes.off.v1"
PROBES_ON = "io.hotstage.probes.on.v1"
PROBES_LEVEL = "io.hotstage.probes.level.v1"
TEST = "io.hotstage.test.v1"
TYPES = (
    *BREAKER_TYPES.values(),
    WINDOW_OPENED,
    WINDOW_CLOSED,
    PROBES_OFF,
    PROBES_ON,
    PROBES_LEVEL,
    TEST,
)

_MAX_EVIDENCE = 16
_MAX_CANDIDATES = 5


class EventMaker:
    """Makes the events of one host; `host_id` names the source."""

    def __init__(self, host_id: str) -> None:
        self._source = f"urn:hotstage:{host_id}"

    def transition(
        self,
        moved: Transition,
        wall_offset_ns: int,
        traceparent: str | None = None,
        *,
        snapshot_id: str | None = None,
    ) -> Event:
        """A breaker's move. Told twice, it has the same id: it is derived from what happened.

        `snapshot_id`: of the snapshot that its opening was the cause of.
        """
        at_ns = moved.at_ns + wall_offset_ns
        data = {
            "breaker": moved.name,
            "scope": moved.scope.labels(),
            "from": moved.from_state.value,
            "to": moved.to_state.value,
            "enforced": moved.enforced,
            "reason": moved.reason,
            "window_id": moved.window_id,
            "actor": moved.actor,
            "at": rfc3339(at_ns),
            "at_ns": at_ns,
            **snapshot_links(None if snapshot_id is None else f"/v1/snapshots/{snapshot_id}"),
        }
        event_type = BREAKER_TYPES[moved.to_state.value]
        identity = f"{self._source}|{moved.name}|{moved.from_state}|{moved.to_state}|{at_ns}"
        return self._event(identity, event_type, moved.name, at_ns, data, traceparent)

    def window_opened(
        self, window: AnomalyWindow, wall_offset_ns: int, traceparent: str | None = None
    ) -> Event:
        at_ns = window.opened_ns + wall_offset_ns
        data = window_data(window, wall_offset_ns)
        return self._window(WINDOW_OPENED, window, at_ns, data, traceparent)

    def window_closed(
        self,
        window: AnomalyWindow,
        wall_offset_ns: int,
        *,
        is_interrupted: bool = False,
        traceparent: str | None = None,
    ) -> Event:
        """`is_interrupted`: the agent ended while it was open; nobody knows whether the trouble did."""
        at_ns = (window.updated_ns if window.closed_ns is None else window.closed_ns) + wall_offset_ns
        data = window_data(window, wall_offset_ns) | {"interrupted": is_interrupted}
        return self._window(WINDOW_CLOSED, window, at_ns, data, traceparent)

    def switched(self, move: SwitchMove) -> Event:
        """All probes were taken away, or brought back."""
        kind = PROBES_OFF if move.state == "off" else PROBES_ON
        data = {
            "state": move.state,
            "actor": move.actor,
            "reason": move.reason,
            "at": rfc3339(move.wall_ns),
            "at_ns": move.wall_ns,
        }
        return self._event(f"{self._source}|{kind}|{move.wall_ns}", kind, "probes", move.wall_ns, data, None)

    def stepped(self, step: Step, at_ns: int) -> Event:
        """The governor moved one process to another level; `at_ns` is wall time."""
        data = {
            "pid": step.pid,
            "from": step.before.name,
            "to": step.level.name,
            "reason": step.reason,
            "at": rfc3339(at_ns),
            "at_ns": at_ns,
        }
        identity = f"{self._source}|{PROBES_LEVEL}|{step.pid}|{at_ns}"
        return self._event(identity, PROBES_LEVEL, f"probes:{step.pid}", at_ns, data, None)

    def test(self, at_ns: int, destination: str) -> Event:
        """What `hotstage webhook test` sends; `at_ns` is wall time."""
        data = {"message": "hotstage can reach this webhook", "destination": destination}
        return self._event(uuid.uuid4().hex, TEST, f"test:{destination}", at_ns, data, None)

    def _window(
        self, kind: str, window: AnomalyWindow, at_ns: int, data: dict[str, Any], traceparent: str | None
    ) -> Event:
        return self._event(
            f"{self._source}|{kind}|{window.id}", kind, f"window:{window.id}", at_ns, data, traceparent
        )

    def _event(
        self,
        identity: str,
        kind: str,
        subject: str,
        at_ns: int,
        data: dict[str, Any],
        traceparent: str | None,
    ) -> Event:
        body: dict[str, Any] = {
            "source": self._source,
            "time": rfc3339(at_ns),
            "time_ns": at_ns,
            "data": data,
        }
        if traceparent:
            body["traceparent"] = traceparent
        event_id = "evt_" + hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
        return Event(event_id, kind, subject, at_ns, msgspec.json.encode(body))


def window_data(window: AnomalyWindow, wall_offset_ns: int) -> dict[str, Any]:
    """The window as webhooks carry it; evidence and candidates are bounded to keep a body below 20 kB."""
    closed_ns = None if window.closed_ns is None else window.closed_ns + wall_offset_ns
    opened_ns = window.opened_ns + wall_offset_ns
    figures_ns, peak_ns = window.updated_ns + wall_offset_ns, window.peak_ns + wall_offset_ns
    return {
        "window_id": window.id,
        "kind": window.kind,
        "severity": window.severity.name,
        "entity": window.entity.labels(),
        "opened_at": rfc3339(opened_ns),
        "opened_at_ns": opened_ns,
        "closed_at": None if closed_ns is None else rfc3339(closed_ns),
        "closed_at_ns": closed_ns,
        # The sentence and the evidence are of that moment, `score` of this one.
        "figures_at": rfc3339(figures_ns),
        "figures_at_ns": figures_ns,
        "peak_at": rfc3339(peak_ns),
        "peak_at_ns": peak_ns,
        "score": window.score,
        "cause": {
            "kind": window.cause.kind,
            "summary": window.cause.summary,
            "confidence": window.cause.confidence,
            "candidates": [
                {"kind": each.kind, "confidence": each.confidence, "why": each.why}
                for each in window.cause.candidates[:_MAX_CANDIDATES]
            ],
        },
        "evidence": [_evidence(each, wall_offset_ns) for each in window.evidence[:_MAX_EVIDENCE]],
        "labels": dict(window.labels),
        "caused_by": window.caused_by,
        **snapshot_links(f"/v1/windows/{window.id}/snapshot"),
    }


def snapshot_links(path: str | None) -> dict[str, str | None]:
    """Where, on the agent, stands what was in flight, and from where it can go on; null: none was taken."""
    return {"snapshot": path, "recovery_plan": None if path is None else f"{path}/plan"}


def _evidence(evidence: Evidence, wall_offset_ns: int) -> dict[str, Any]:
    return {
        "column": evidence.column,
        "value": evidence.value,
        "limit": evidence.limit,
        "unit": evidence.unit,
        "since_ns": None if evidence.since_ns is None else evidence.since_ns + wall_offset_ns,
        "note": evidence.note,
    }
