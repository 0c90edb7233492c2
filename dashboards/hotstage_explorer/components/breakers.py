# SPDX-License-Identifier: Apache-2.0
"""Circuit breakers as a list: state in words and colour, whether callers heed it, since when, why."""

from __future__ import annotations

from hotstage_explorer import units
from hotstage_explorer.components.node import Node, node
from hotstage_explorer.components.words import chip, moment, nothing
from hotstage_explorer.picture import BreakerRow, Section

# Colour is never alone: the word is always there.
_STATES = {"closed": "closed", "open": "open", "half_open": "half open", "forced_open": "forced open"}
_ADMITTING = frozenset({"disabled", "metrics_only"})


def breakers(section: Section[tuple[BreakerRow, ...]], now_ns: int | None) -> Node:
    """`now_ns` is the agent's wall clock."""
    if section.value:
        return node("ul", *(_breaker(b, now_ns) for b in section.value), cls="breakers")
    if section.read_at is None:
        return nothing("Not read yet")
    return nothing("No breaker", "One appears with the first traffic of its stage, instance or GPU.")


def tally(section: Section[tuple[BreakerRow, ...]]) -> str:
    """The panel's count, e.g. `1 of 6 not closed`."""
    if not section.value:
        return ""
    moved = sum(b.state != "closed" for b in section.value)
    return f"{moved} of {len(section.value)} not closed" if moved else f"{len(section.value)} closed"


def _heed(b: BreakerRow) -> Node:
    if b.is_enforced:
        return chip("enforced", "enforced", "callers heed this state")
    if b.state in _ADMITTING:
        return chip("admits", "dry", "set by a person: callers shed nothing")
    return chip("dry run", "dry", "the state moves, but callers are not told to heed it")


def _left(b: BreakerRow, now_ns: int | None) -> str:
    if now_ns is None or b.override_until_ns is None:
        return ""
    return f" · {units.age(max(0.0, (b.override_until_ns - now_ns) / 1e9))} left"


def _breaker(b: BreakerRow, now_ns: int | None) -> Node:
    state = b.state if b.state in _STATES else "unknown"
    lasted = (
        ""
        if now_ns is None or b.since_ns is None
        else f" · {units.age(max(0.0, (now_ns - b.since_ns) / 1e9))}"
    )
    head = node(
        "div",
        node("span", _STATES.get(b.state, b.state.replace("_", " ")), cls=f"state {state}"),
        node("strong", b.name, cls="breaker-name", title=b.name),
        cls="breaker-head",
    )
    line = node(
        "div",
        _heed(b),
        chip(f"override: {b.override.replace('_', ' ')}", "override") if b.override else None,
        chip("stale", "stale", "no data: the state is kept as it was") if b.is_stale else None,
        chip(b.host, title=f"host: {b.host}") if b.host else None,
        node("span", "since ", moment(b.since_ns), lasted, cls="when"),
        cls="breaker-line",
    )
    override = node("p", b.override_says, _left(b, now_ns), cls="cause") if b.override_says else None
    told = "figures as of its last move; its window has the newest ones"
    reason = node("p", b.reason, cls="cause", title=told) if b.reason else None
    return node("li", head, line, override, reason, cls=f"breaker {state}", key=f"{b.host}|{b.name}")
