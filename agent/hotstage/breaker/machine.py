# SPDX-License-Identifier: Apache-2.0
"""The circuit breaker as a pure function: (record, evidence, now) → (record, transition or None).

closed ──window in 2 of 3 looks, with samples──▶ open ──cool-down over, window gone──▶ half_open
half_open ──window again──▶ open (cool-down doubles); half_open ──requests end well, no window──▶ closed
Without data nothing moves and the record is stale. Overrides lie over the state, which goes on moving.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hotstage.breaker.record import (
    BreakerRecord,
    BreakerState,
    Override,
    Transition,
)

TRANSITIONS_KEPT = 16


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits of the machine; times in ns."""

    bad_of: tuple[int, int] = (2, 3)
    """k of the last n looks must see a window before it opens."""
    min_samples: int = 1
    """Requests in its scope, in flight or ended lately, before it opens; hard facts need none."""
    open_after_ns: int = 0
    cool_down_ns: int = 10_000_000_000
    cool_down_max_ns: int = 600_000_000_000
    close_for_ns: int = 5_000_000_000
    min_probe_samples: int = 5
    max_bad_ratio: float = 0.2
    """Share of the probing requests that may end badly; more and it does not close."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one look at the scope gave."""

    window_id: str | None = None
    """An open window in the scope."""
    window_opened_ns: int = 0
    reason: str = ""
    is_hard: bool = False
    is_stale: bool = False
    """Nobody could see: no pulse, or one with losses."""
    samples: int = 0
    """Requests in flight and ended in the last seconds."""
    ended_well: int = 0
    ended_badly: int = 0
    """Since the last look."""
    may_open: bool = True
    """False while the share of open breakers is used up."""


def advance(
    record: BreakerRecord, evidence: Evidence, now_ns: int, policy: Policy
) -> tuple[BreakerRecord, Transition | None]:
    """One look. At most one transition of the shown state comes out of it."""
    before = record.shown
    record = _end_override(record, now_ns)
    if record.shown is not before:
        return _changed(record, before, now_ns, "the override has ended", None)
    if evidence.is_stale:
        return replace(record, is_stale=True, updated_ns=now_ns), None
    record = replace(
        record,
        is_stale=False,
        updated_ns=now_ns,
        bad_bits=(record.bad_bits << 1 | (evidence.window_id is not None)) & 0xFF,
        evaluations=record.evaluations + 1,
        clear_since_ns=_clear_since(record, evidence, now_ns),
    )
    step = _STEPS[record.state](record, evidence, now_ns, policy)
    if step is None:
        return record, None
    if record.override is not None:
        # It moves underneath; people see the override.
        return step, None
    return _changed(step, before, now_ns, step.reason, evidence.window_id or step.window_id)


def set_override(record: BreakerRecord, override: Override) -> tuple[BreakerRecord, Transition | None]:
    """A person decides; the override before it is replaced."""
    before = record.shown
    changed = replace(record, override=override)
    if changed.shown is before:
        return changed, None
    reason = override.reason or f"{override.action.value} by {override.actor}"
    return _changed(changed, before, override.set_ns, reason, None, actor=override.actor)


def clear_override(record: BreakerRecord, actor: str, now_ns: int) -> tuple[BreakerRecord, Transition | None]:
    """Back to what the machine thinks."""
    if record.override is None:
        return record, None
    before = record.shown
    changed = replace(record, override=None)
    return _changed(changed, before, now_ns, f"override taken back by {actor}", None, actor=actor)


def _from_closed(
    record: BreakerRecord, evidence: Evidence, now_ns: int, policy: Policy
) -> BreakerRecord | None:
    k, n = policy.bad_of
    if evidence.window_id is None or not evidence.may_open:
        return None
    if (record.bad_bits & ((1 << n) - 1)).bit_count() < k and not evidence.is_hard:
        return None
    if evidence.samples < policy.min_samples and not evidence.is_hard:
        return None
    if now_ns - evidence.window_opened_ns < policy.open_after_ns:
        return None
    return _opened(record, evidence, now_ns, policy.cool_down_ns, relapses=0)


def _from_open(
    record: BreakerRecord, evidence: Evidence, now_ns: int, policy: Policy
) -> BreakerRecord | None:
    if evidence.window_id is not None or now_ns - record.since_ns < record.cool_down_ns:
        return None
    return replace(
        record,
        state=BreakerState.half_open,
        since_ns=now_ns,
        reason="cool-down over and no window open: requests may probe",
        ended_well=0,
        ended_badly=0,
    )


def _from_half_open(
    record: BreakerRecord, evidence: Evidence, now_ns: int, policy: Policy
) -> BreakerRecord | None:
    if evidence.window_id is not None:
        longer = min(2 * max(record.cool_down_ns, policy.cool_down_ns), policy.cool_down_max_ns)
        return _opened(record, evidence, now_ns, longer, relapses=record.relapses + 1)
    record_now = replace(
        record,
        ended_well=record.ended_well + evidence.ended_well,
        ended_badly=record.ended_badly + evidence.ended_badly,
    )
    ended = record_now.ended_well + record_now.ended_badly
    is_clear = record_now.clear_since_ns is not None and (
        now_ns - max(record_now.clear_since_ns, record_now.since_ns) >= policy.close_for_ns
    )
    if not is_clear or record_now.ended_well < policy.min_probe_samples:
        return record_now
    if record_now.ended_badly > policy.max_bad_ratio * ended:
        # Too many of the probes failed: count anew, stay half-open.
        return replace(record_now, ended_well=0, ended_badly=0)
    return replace(
        record_now,
        state=BreakerState.closed,
        since_ns=now_ns,
        reason=f"{record_now.ended_well} requests ended well and no window was open",
        window_id=None,
        cool_down_ns=0,
        relapses=0,
        bad_bits=0,
    )


_STEPS = {
    BreakerState.closed: _from_closed,
    BreakerState.open: _from_open,
    BreakerState.half_open: _from_half_open,
}


def _opened(
    record: BreakerRecord, evidence: Evidence, now_ns: int, cool_down_ns: int, *, relapses: int
) -> BreakerRecord:
    return replace(
        record,
        state=BreakerState.open,
        since_ns=now_ns,
        reason=evidence.reason,
        window_id=evidence.window_id,
        cool_down_ns=cool_down_ns,
        relapses=relapses,
        clear_since_ns=None,
    )


def _clear_since(record: BreakerRecord, evidence: Evidence, now_ns: int) -> int | None:
    if evidence.window_id is not None:
        return None
    return now_ns if record.clear_since_ns is None or record.is_stale else record.clear_since_ns


def _end_override(record: BreakerRecord, now_ns: int) -> BreakerRecord:
    if record.override is None or now_ns < record.override.until_ns:
        return record
    return replace(record, override=None)


def _changed(
    record: BreakerRecord,
    before: BreakerState,
    now_ns: int,
    reason: str,
    window_id: str | None,
    *,
    actor: str | None = None,
) -> tuple[BreakerRecord, Transition | None]:
    """Note the change of the shown state; none if only counters moved."""
    if record.shown is before:
        return record, None
    transition = Transition(
        name=record.name,
        scope=record.scope,
        from_state=before,
        to_state=record.shown,
        at_ns=now_ns,
        reason=reason,
        window_id=window_id,
        actor=actor,
        enforced=record.is_heeded,
    )
    kept = (*record.transitions, transition)[-TRANSITIONS_KEPT:]
    return replace(record, transitions=kept), transition
