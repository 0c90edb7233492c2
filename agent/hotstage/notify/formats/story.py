# SPDX-License-Identifier: Apache-2.0
"""What an event says, read once for all formats that speak to people: words, times, what it is about.

Pure. An event of a type that is not known here still has a story, its type; what is absent is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec import Struct

from hotstage.notify.db import HeldEvent
from hotstage.notify.formats.envelope import Envelope

Topic = Literal["window", "breaker", "switch", "test", "other"]

WINDOW_PREFIX = "io.hotstage.window."
BREAKER_PREFIX = "io.hotstage.breaker."
PROBES_PREFIX = "io.hotstage.probes."
TEST_PREFIX = "io.hotstage.test."

_STATES = {
    "open": "open",
    "half_open": "half-open",
    "forced_open": "forced open",
    "closed": "closed",
    "disabled": "disabled",
    "metrics_only": "set to metrics only",
}
_SHEDDING = frozenset({"open", "half_open", "forced_open"})
_ADMITTING = frozenset({"disabled", "metrics_only"})
# The agent's names of an entity's parts → the names that metrics and alerts have.
_PARTS = {"instance": "instance_id"}


class Cause(Struct, frozen=True):
    """The part of a window's cause that messages carry."""

    summary: str = ""
    confidence: float | None = None


class _Window(Struct, frozen=True):
    window_id: str | None = None
    kind: str | None = None
    severity: str | None = None
    entity: dict[str, str | int] = {}
    opened_at: str | None = None
    opened_at_ns: int | None = None
    closed_at: str | None = None
    closed_at_ns: int | None = None
    peak_at_ns: int | None = None
    score: float | None = None
    cause: Cause = Cause()
    labels: dict[str, str] = {}
    caused_by: str | None = None
    interrupted: bool = False


class _Breaker(Struct, frozen=True, rename={"from_state": "from"}):
    breaker: str | None = None
    scope: dict[str, str | int] = {}
    from_state: str | None = None
    to: str | None = None
    enforced: bool | None = None
    reason: str | None = None
    window_id: str | None = None
    actor: str | None = None
    at: str | None = None


class _Switch(Struct, frozen=True):
    state: str | None = None
    actor: str | None = None
    reason: str | None = None
    at: str | None = None


class _Level(Struct, frozen=True, rename={"from_level": "from"}):
    pid: int | None = None
    from_level: str | None = None
    to: str | None = None
    reason: str | None = None


class _Test(Struct, frozen=True):
    message: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """`title` is one short line, `text` one sentence with the host in it. Times are RFC 3339, UTC.

    `is_firing`: True from the event that begins a trouble to the one that ends it, None where there is no
    such thing. `parts` name what it is about: stage, modality, endpoint, instance_id, gpu_uuid, pid.
    """

    topic: Topic
    title: str
    text: str
    status: str
    host: str
    is_firing: bool | None = None
    severity: str | None = None
    kind: str | None = None
    parts: dict[str, str] = field(default_factory=dict)
    breaker: str | None = None
    enforced: bool | None = None
    window_id: str | None = None
    cause: str | None = None
    cause_confidence: float | None = None
    reason: str | None = None
    actor: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    labels: dict[str, str] = field(default_factory=dict)


def tell(event: HeldEvent, envelope: Envelope, host: str) -> Story:
    """The story of an event. Raises msgspec.DecodeError for data of another shape."""
    if event.type.startswith(WINDOW_PREFIX):
        return _of_window(msgspec.json.decode(envelope.data, type=_Window), event.type, host)
    if event.type.startswith(BREAKER_PREFIX):
        return _of_breaker(msgspec.json.decode(envelope.data, type=_Breaker), envelope, event.subject, host)
    if event.type.startswith(PROBES_PREFIX + "level."):
        return _of_level(msgspec.json.decode(envelope.data, type=_Level), envelope, host)
    if event.type.startswith(PROBES_PREFIX):
        return _of_switch(msgspec.json.decode(envelope.data, type=_Switch), envelope, host)
    if event.type.startswith(TEST_PREFIX):
        said = msgspec.json.decode(envelope.data, type=_Test).message
        return Story("test", "Test", f"On {host}: {said}", "test", host, started_at=envelope.time)
    return Story("other", event.type, f"On {host}: {event.subject}", "unknown", host)


def _of_window(said: _Window, event_type: str, host: str) -> Story:
    is_open = event_type.startswith(WINDOW_PREFIX + "opened")
    summary = said.cause.summary or said.kind or "no cause is known"
    about = f"{said.kind or 'anomaly'}, {_where(said.entity)}"
    if is_open:
        title, text = f"Anomaly: {about}", f"On {host}: {summary} (figures as it opened)"
    elif said.interrupted:
        title, text = (
            f"No longer watched: {about}",
            f"On {host}, the agent ended before it was over: {summary} ({_of_which_moment(said)})",
        )
    else:
        title = f"Over: {about}"
        text = f"On {host}, {_lasted(said)}: {summary} ({_of_which_moment(said)})"
    if said.caused_by:
        text += f". Explained by the XID of window {said.caused_by}"
    return Story(
        "window",
        title,
        text,
        "open" if is_open else "closed",
        host,
        is_firing=is_open,
        severity=said.severity,
        kind=said.kind,
        parts=_parts(said.entity),
        window_id=said.window_id,
        cause=said.cause.summary or None,
        cause_confidence=said.cause.confidence,
        started_at=said.opened_at,
        ended_at=None if is_open else said.closed_at,
        labels=said.labels,
    )


def _of_breaker(said: _Breaker, envelope: Envelope, subject: str, host: str) -> Story:
    name, status = said.breaker or subject, said.to or "unknown"
    is_firing = status in _SHEDDING
    at = said.at or envelope.time
    return Story(
        "breaker",
        f"Breaker {name} is {_STATES.get(status, status)}",
        f"On {host}{_heed(said, status)}: {said.reason or 'no reason was given'}{_of_its_window(said)}",
        status,
        host,
        is_firing=is_firing,
        severity="critical" if said.enforced and is_firing else "warning",
        kind="breaker",
        parts=_parts(said.scope),
        breaker=name,
        enforced=said.enforced,
        window_id=said.window_id,
        reason=said.reason,
        actor=said.actor,
        started_at=at if is_firing else None,
        ended_at=None if is_firing else at,
    )


def _of_switch(said: _Switch, envelope: Envelope, host: str) -> Story:
    is_off = said.state == "off"
    at = said.at or envelope.time
    why = f"by {said.actor or 'somebody'}: {said.reason or 'no reason was given'}"
    return Story(
        "switch",
        "Probes are switched off" if is_off else "Probes are switched on again",
        f"On {host}, {why}" + (". Nothing is observed there" if is_off else ""),
        "off" if is_off else "on",
        host,
        is_firing=is_off,
        severity="warning",
        kind="probes_off",
        reason=said.reason,
        actor=said.actor,
        started_at=at if is_off else None,
        ended_at=None if is_off else at,
    )


def _of_level(said: _Level, envelope: Envelope, host: str) -> Story:
    """News, no trouble: the governor does what it was told to."""
    level = said.to or "unknown"
    return Story(
        "other",
        f"Probes of process {said.pid} are at level {level}",
        f"On {host}, from {said.from_level or 'unknown'}: {said.reason or 'no reason is known'}",
        level,
        host,
        severity="info",
        kind="probes_level",
        parts={} if said.pid is None else {"pid": str(said.pid)},
        reason=said.reason,
        started_at=envelope.time,
    )


def _heed(said: _Breaker, status: str) -> str:
    """What callers do about it, where that is not what the state says by itself."""
    by = f" by {said.actor}" if said.actor else ""
    if status in _ADMITTING:
        return f" (set{by}: callers are told to admit)"
    if said.enforced is False:
        return " (dry run: callers are not told to heed it)"
    return f" (set{by}: callers heed it, in dry run, too)" if status == "forced_open" else ""


def _of_its_window(said: _Breaker) -> str:
    """A breaker that a window opens gives that window's sentence as its reason."""
    return " (figures as it moved)" if said.to == "open" and said.window_id and said.reason else ""


def _of_which_moment(said: _Window) -> str:
    """Of a window that is over: its sentence is of its last sign; when it was worst, and how bad."""
    worst = ""
    if (
        said.score is not None
        and said.score > 1
        and said.peak_at_ns is not None
        and said.opened_at_ns is not None
    ):
        after = _span(said.peak_at_ns - said.opened_at_ns)
        worst = f"; at its worst, {after} after it opened, {said.score:.3g} times its limit"
    return f"figures of its last sign{worst}"


def _parts(entity: dict[str, str | int]) -> dict[str, str]:
    return {_PARTS.get(name, name): str(value) for name, value in entity.items()}


def _where(entity: dict[str, str | int]) -> str:
    return " ".join(str(value) for value in entity.values()) or "the host"


def _lasted(said: _Window) -> str:
    if said.opened_at_ns is None or said.closed_at_ns is None:
        return "for an unknown time"
    return f"after {_span(said.closed_at_ns - said.opened_at_ns)}"


def _span(length_ns: int) -> str:
    seconds = max(0.0, length_ns / 1e9)
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
