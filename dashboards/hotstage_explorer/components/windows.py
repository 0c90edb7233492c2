# SPDX-License-Identifier: Apache-2.0
"""Anomaly windows as a list: what, where, since when, why."""

from __future__ import annotations

from hotstage_explorer import units
from hotstage_explorer.components.node import Child, Node, node
from hotstage_explorer.components.words import chip, moment, nothing
from hotstage_explorer.picture import AGENT, Evidence, Origin, Section, WindowRow
from hotstage_explorer.where import Where

MAX_CLOSED = 12
_KINDS = {
    "stage_latency": "Stage latency",
    "alive_but_hung": "Alive but hung",
    "gpu_xid": "GPU error (XID)",
    "process_death": "Process death",
    "token_conflict": "Token conflict",
    "cpu_starvation": "CPU starvation",
    "shared_stream": "Shared stream",
}
_SEVERITIES = ("critical", "warning", "info")
# The entity in the order in which a person asks: what work, then where.
_ENTITY_ORDER = ("stage", "modality", "endpoint", "instance", "gpu_uuid", "pci_bus_id", "pid")
_ENTITY_LABELS = {"gpu_uuid": "", "pci_bus_id": "PCI"}


def windows(section: Section[tuple[WindowRow, ...]], now_ns: int | None, origin: Origin = AGENT) -> Node:
    """Open ones first, closed ones greyed; `now_ns` is the agent's wall clock."""
    rows = section.value
    shown = [w for w in rows if w.is_open] + [w for w in rows if not w.is_open][:MAX_CLOSED]
    if shown:
        return node("ul", *(_window(w, now_ns, origin) for w in shown), cls="windows")
    if section.read_at is None:
        return nothing("Not read yet")
    return nothing("No anomaly window", origin.no_window)


def tally(section: Section[tuple[WindowRow, ...]]) -> str:
    """The panel's count, e.g. `2 open`."""
    return f"{sum(w.count for w in section.value if w.is_open)} open" if section.read_at is not None else ""


def kind_name(kind: str) -> str:
    return _KINDS.get(kind, kind.replace("_", " "))


def severity_class(severity: str) -> str:
    """The stylesheet's class of a severity; unknown ones look like information."""
    return severity if severity in _SEVERITIES else "info"


def _window(w: WindowRow, now_ns: int | None, origin: Origin) -> Node:
    severity = severity_class(w.severity)
    head = node(
        "div",
        node("span", w.severity, cls=f"severity {severity}"),
        node("strong", kind_name(w.kind) + (f" × {w.count}" if w.count > 1 else ""), title=w.kind),
        node("span", *_span(w, now_ns), cls="when"),
        cls="window-head",
    )
    chips = node("div", *(chip(_entity(k, v), title=f"{k}: {v}") for k, v in _ordered(w)), cls="chips")
    cause = node("p", w.cause or origin.no_cause, cls="cause")
    state = "open" if w.is_open else "closed"
    flight = _snapshot(w) if origin == AGENT else None
    return node(
        "li",
        head,
        chips,
        cause,
        _explained(w),
        _moments(w),
        _details(w),
        flight,
        cls=f"window {severity} {state}",
        key=w.id,
    )


def _explained(w: WindowRow) -> Node | None:
    """One cause, two windows: the server's names that of its GPU."""
    return node("p", f"Explained by window {w.caused_by}", cls="soft") if w.caused_by else None


def _moments(w: WindowRow) -> Node | None:
    """Which moment the sentence's figures are of, and when it was worst: they are seldom the same."""
    if w.figures_ns is None:
        return None
    which = "newest sign" if w.is_open else "last sign"
    parts: list[Child] = [f"Figures of its {which}, ", moment(w.figures_ns)]
    if w.peak_ns is not None and w.score is not None and w.score > 1:
        parts += [f"; at its worst {units.significant(w.score)} × its limit, ", moment(w.peak_ns)]
    return node("p", *parts, cls="soft")


def _snapshot(w: WindowRow) -> Node:
    """To what was in flight when it opened: a snapshot is found by its window's id as well."""
    return node("a", "In flight when it opened", href=Where("/snapshots/", w.id).href(), cls="to-snapshot")


def _span(w: WindowRow, now_ns: int | None) -> list[Child]:
    end_ns = now_ns if w.is_open else w.closed_ns
    lasted = (
        "" if end_ns is None or w.opened_ns is None else units.age(max(0.0, (end_ns - w.opened_ns) / 1e9))
    )
    about = "about " if w.is_about else ""
    if w.is_open and w.opened_ns is None:
        return ["just opened"]
    if w.is_open:
        return [f"since {about}", moment(w.opened_ns), f" · {lasted}" if lasted else ""]
    return [f"closed {about}", moment(w.closed_ns), f" · lasted {about}{lasted}" if lasted else ""]


def _ordered(w: WindowRow) -> list[tuple[str, str]]:
    rank = {name: n for n, name in enumerate(_ENTITY_ORDER)}
    host = (("host", w.host),) if w.host else ()
    return sorted((*w.entity, *host), key=lambda item: rank.get(item[0], len(rank)))


def _entity(key: str, value: str) -> str:
    if key in ("stage", "modality", "endpoint", "host"):
        return value
    short = value if len(value) <= 20 else f"{value[:12]}…{value[-4:]}"
    return f"{_ENTITY_LABELS.get(key, key)} {short}".strip()


def _details(w: WindowRow) -> Node | None:
    if not w.evidence and not w.candidates:
        return None
    parts: list[Child] = [node("summary", "Evidence")]
    if w.confidence is not None:
        parts.append(node("p", f"Confidence in this cause: {units.percent(w.confidence)}", cls="soft"))
    if w.evidence:
        parts.append(node("ul", *(node("li", *_evidence(e)) for e in w.evidence), cls="evidence"))
    others = [f"{kind_name(c.kind)} ({units.percent(c.confidence)}): {c.why}" for c in w.candidates[1:]]
    if others:
        parts.append(node("p", "Also considered:", cls="soft"))
        parts.append(node("ul", *(node("li", other) for other in others), cls="evidence"))
    return node("details", *parts)


def _evidence(e: Evidence) -> list[Child]:
    limit = "" if e.limit is None else f" (limit {_value(e.limit, e.unit)})"
    return [
        node("code", e.column),
        f" {_value(e.value, e.unit)}",
        node("span", f"{limit} {e.note}".rstrip(), cls="soft"),
    ]


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "unknown"
    if unit in ("seconds", "s"):
        return units.duration(value) if value >= 0 else f"{units.significant(value)} s"
    if unit in ("ratio", "1"):
        return units.significant(value)
    return f"{units.significant(value)} {unit}".strip()
