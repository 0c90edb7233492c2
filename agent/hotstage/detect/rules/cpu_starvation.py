# SPDX-License-Identifier: Apache-2.0
"""CPU starvation: threads that feed a GPU wait for a CPU far longer than usual, and less reaches it for that.

Judged once a second for each instance, by what its threads waited, launched and had in flight. Not starved:
an idle server, a busy host whose GPU threads get their CPUs, a server that has just started, more work done
by more threads. A second that is not known is none: it neither fires nor clears.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from statistics import median

from hotstage.detect.finding import Evidence, Finding, Severity
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.frame import Frame

KIND = "cpu_starvation"

WAIT_FLOOR_THREADS = 0.25
"""On average over ten seconds; a GPU that is fed by one thread is a quarter of the time without it."""
WAIT_TIMES, WAIT_PLUS = 3.0, 0.1
LAUNCHES_LEFT = 0.7
INFLIGHT_TIMES, INFLIGHT_PLUS = 1.5, 2.0
SECONDS_OF, SECONDS_LAST = 6, 8
"""It fires when so many of the last ones were starved."""
CALM_SECONDS = 5
CALM_SHARE = 0.6
"""It ends after so many seconds in a row below this part of the level."""

_LEARN_MIN, _LEARN_MAX, _QUARANTINE = 15, 300, 10
_NEEDED = frozenset({"requests", "calls", "host"})
_QUOTA, _NEIGHBOURS, _OWN = "quota", "neighbours", "own threads"
_CAUSES = {
    _QUOTA: "its CPU quota is used up in {share:.0%} of the periods",
    _NEIGHBOURS: "the host's CPUs are {share:.0%} busy, mostly with the work of others",
    _OWN: "its own threads use {share:.0%} of the CPUs that it may use",
}
_CAUSE_COLUMNS = {
    _QUOTA: "cpu_throttled_ratio",
    _NEIGHBOURS: "host cpu_load_ratio",
    _OWN: "cpu_load_ratio",
}
_CAUSE_LEAST = {_QUOTA: 0.1, _NEIGHBOURS: 0.8, _OWN: 0.7}


@dataclass(frozen=True, slots=True)
class Second:
    """What one second of an instance came to; no NaN. `waiting`: threads, on average."""

    waiting: float
    launches: float
    inflight: float


@dataclass(slots=True)
class _State:
    known: deque[Second] = field(default_factory=lambda: deque(maxlen=_LEARN_MAX))
    fresh: deque[Second] = field(default_factory=lambda: deque(maxlen=_QUARANTINE))
    """Of the last seconds, learned once nothing came of them."""
    starved: deque[bool] = field(default_factory=lambda: deque(maxlen=SECONDS_LAST))
    calm: int = 0
    since_ns: int = 0
    is_firing: bool = False
    finding: Finding | None = None


class CpuStarvation:
    """Detector `cpu_starvation`. Not thread-safe."""

    def __init__(self) -> None:
        self._states: dict[Entity, _State] = {}

    def observe_frame(self, frame: Frame) -> list[Finding]:
        """What is starved as of this frame."""
        entities = list(frame.of_kind(EntityKind.instance))
        self._states = {entity: self._states.get(entity) or _State() for entity in entities}
        for entity, state in self._states.items():
            second = None if frame.stale & _NEEDED else _second(frame, entity)
            if second is not None:
                self._advance(state, second, frame, entity)
        return [state.finding for state in self._states.values() if state.finding is not None]

    def _advance(self, state: _State, second: Second, frame: Frame, entity: Entity) -> None:
        usual = _usual(state)
        if usual is None:
            if second.inflight > 0 and second.launches > 0:
                state.known.append(second)
            return
        level = max(WAIT_FLOOR_THREADS, WAIT_TIMES * usual.waiting + WAIT_PLUS)
        is_starved = second.inflight > 0 and second.waiting > level and _is_hurt(second, usual)
        state.starved.append(is_starved)
        if is_starved and state.since_ns == 0:
            state.since_ns = frame.at_ns
        is_calm = second.waiting <= CALM_SHARE * level or second.inflight <= 0
        state.calm = state.calm + 1 if is_calm or second.launches >= usual.launches else 0
        state.is_firing |= sum(state.starved) >= SECONDS_OF
        if state.calm >= CALM_SECONDS:
            state.is_firing, state.since_ns = False, 0
            state.starved.clear()
        if state.is_firing:
            state.fresh.clear()
            if is_starved or state.finding is None:
                state.finding = _finding(entity, second, usual, level, frame, state.since_ns)
            else:
                state.finding = replace(state.finding, at_ns=frame.at_ns)
        else:
            state.finding = None
            _learn(state, second)


def _learn(state: _State, second: Second) -> None:
    """A second counts once the ones after it were well: a fault that grows is not learned as usual."""
    if not any(state.starved):
        state.since_ns = 0
    if second.inflight <= 0 or second.launches <= 0:
        return
    if len(state.fresh) == _QUARANTINE and not any(state.starved):
        state.known.append(state.fresh[0])
    state.fresh.append(second)


def _usual(state: _State) -> Second | None:
    if len(state.known) < _LEARN_MIN:
        return None
    return Second(
        median(each.waiting for each in state.known),
        median(each.launches for each in state.known),
        median(each.inflight for each in state.known),
    )


def _is_hurt(second: Second, usual: Second) -> bool:
    """Less is launched for what is asked: far less than usual for as much, or less while more stands in line.
    Who launches at its usual rate gets its CPUs, whatever its threads wait.
    """
    if second.launches >= usual.launches or second.inflight < 0.8 * usual.inflight:
        return False
    return second.launches < LAUNCHES_LEFT * usual.launches or (
        second.inflight > max(INFLIGHT_TIMES * usual.inflight, usual.inflight + INFLIGHT_PLUS)
    )


def _second(frame: Frame, entity: Entity) -> Second | None:
    values = [frame.get(entity, name) for name in ("cpu_wait_threads", "launch_rate", "inflight")]
    return None if any(math.isnan(value) for value in values) else Second(*values)


def ranked_causes(frame: Frame, entity: Entity) -> list[tuple[str, float]]:
    """(cause, its share) by how far each is above what is least for it; those below and unknown ones are left
    out. A quota comes before the CPUs that it leaves busy.
    """
    own, host = frame.get(entity, "cpu_load_ratio"), frame.get(HOST, "cpu_load_ratio")
    shares = {
        _QUOTA: frame.get(entity, "cpu_throttled_ratio"),
        _NEIGHBOURS: host if not own > 0.5 * host else math.nan,
        _OWN: own,
    }
    found = [(cause, share) for cause, share in shares.items() if share >= _CAUSE_LEAST[cause]]
    return sorted(found, key=lambda each: -each[1] / _CAUSE_LEAST[each[0]])


def _finding(
    entity: Entity, second: Second, usual: Second, level: float, frame: Frame, since_ns: int
) -> Finding:
    causes = ranked_causes(frame, entity)
    why = _CAUSES[causes[0][0]].format(share=causes[0][1]) if causes else "nothing says what has the CPUs"
    left = second.launches / usual.launches
    evidence = [
        _measured("cpu_wait_threads", second.waiting, level, "", since_ns, usual.waiting),
        _measured(
            "launch_rate", second.launches, LAUNCHES_LEFT * usual.launches, "1/s", since_ns, usual.launches
        ),
        Evidence("inflight", second.inflight, None, "", None, f"usual {usual.inflight:.3g}"),
    ]
    for cause, share in causes:
        least = _CAUSE_LEAST[cause]
        evidence.append(
            Evidence(_CAUSE_COLUMNS[cause], round(share, 3), least, "ratio", None, f"cause: {cause}")
        )
    preempted = frame.get(entity, "cpu_preempted_threads")
    if not math.isnan(preempted):
        evidence.append(
            Evidence("cpu_preempted_threads", round(preempted, 3), None, "", None, "taken off their CPU")
        )
    return Finding(
        detector=KIND,
        kind=KIND,
        entity=entity,
        since_ns=since_ns,
        at_ns=frame.at_ns,
        score=second.waiting / level,
        limit=level,
        summary=(
            f"threads of {entity.instance} that feed its GPU wait for a CPU: {second.waiting:.2g} at a time, "
            f"where {usual.waiting:.2g} is usual; {left:.0%} of the usual launches with "
            f"{second.inflight:.0f} requests in flight; {why}"
        ),
        # What nothing explains is told, and moves no breaker.
        severity=Severity.warning if causes else Severity.info,
        confidence=0.85 if causes else 0.7,
        evidence=tuple(evidence),
        labels={"cause": causes[0][0]} if causes else {},
    )


def _measured(column: str, value: float, limit: float, unit: str, since_ns: int, usual: float) -> Evidence:
    return Evidence(column, round(value, 3), round(limit, 3), unit, since_ns, f"usual {usual:.3g}")
