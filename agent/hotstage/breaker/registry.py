# SPDX-License-Identifier: Apache-2.0
"""All breakers of the host: made when a window first needs one, moved by the machine, bounded in number."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hotstage.breaker.machine import Evidence, Policy, advance, clear_override, set_override
from hotstage.breaker.record import BreakerRecord, BreakerState, Override, OverrideAction, Transition
from hotstage.breaker.scopes import SCOPE_FORMS, scope_name, scope_named, scopes_of, traffic_of
from hotstage.config.settings import BreakersConfig
from hotstage.detect.finding import Severity
from hotstage.frame.entity import Entity, EntityKind
from hotstage.stages.pulse import Pulse
from hotstage.stages.tracker import PROBES_OFF
from hotstage.windows.window import AnomalyWindow

_TRAFFIC_NS = 10_000_000_000
_HARD_KINDS = frozenset({"gpu_xid", "gpu_lost", "process_death", "alive_but_hung", "token_conflict"})
_FORGET_NS = 3_600_000_000_000
"""A closed breaker without an override goes this long after its last change when room is needed."""


class BreakerSet:
    """`advance` once a fast tick. Owns the records; not thread-safe."""

    def __init__(self, config: BreakersConfig) -> None:
        self._records: dict[str, BreakerRecord] = {}
        self._recent: dict[str, deque[tuple[int, int]]] = {}
        self._seen_ns: dict[str, int] = {}
        self.refused = 0
        """Scopes that got no breaker because there were too many."""
        self.take_over(config)

    def take_over(self, config: BreakersConfig) -> None:
        """Another policy from now on. States stay as they are; whether callers heed them changes at once."""
        self._enforced = config.enforced
        self._min_severity = Severity[config.min_severity]
        self._kinds = frozenset(config.scopes)
        self._max_open_ratio = config.max_open_ratio
        self._max_breakers = config.max_breakers
        self._policy = Policy(
            open_after_ns=round(config.open_after_seconds * 1e9),
            cool_down_ns=round(config.cool_down_seconds * 1e9),
            cool_down_max_ns=round(config.cool_down_max_seconds * 1e9),
            close_for_ns=round(config.close_for_seconds * 1e9),
            min_probe_samples=config.min_probe_samples,
        )
        self._records = {
            name: replace(record, enforced=self._enforced) for name, record in self._records.items()
        }

    @property
    def records(self) -> tuple[BreakerRecord, ...]:
        """All of them, by name."""
        return tuple(self._records[name] for name in sorted(self._records))

    def restore(self, records: Iterable[BreakerRecord]) -> None:
        """Records of the run before, their times already on this boot's monotonic clock; they start stale."""
        for record in records:
            self._records[record.name] = replace(record, enforced=self._enforced, is_stale=True)

    def advance(self, now_ns: int, pulse: Pulse, windows: Sequence[AnomalyWindow]) -> list[Transition]:
        """One look at the open `windows` and the pulse's traffic → what moved."""
        by_name = self._windows_by_breaker(windows, now_ns)
        self._note_instances(pulse)
        transitions = []
        for name in list(self._records):
            record = self._records[name]
            evidence = self._evidence(record, by_name.get(name), pulse)
            record, transition = advance(record, evidence, now_ns, self._policy)
            self._records[name] = record
            if transition is not None:
                transitions.append(transition)
        return transitions

    def override(
        self, name: str, action: OverrideAction, *, ttl_ns: int, actor: str, reason: str, now_ns: int
    ) -> Transition | None:
        """A person's order; a breaker whose scope had no window yet is made.

        ValueError, for people, for a name that no breaker can have and where there are too many.
        """
        if name not in self._records:
            self._make_named(name, now_ns)
        order = Override(action, actor, reason, now_ns, now_ns + ttl_ns)
        self._records[name], transition = set_override(self._records[name], order)
        return transition

    def reset(self, name: str, *, actor: str, now_ns: int) -> Transition | None:
        """Take an override back. KeyError for a name that no breaker has."""
        self._records[name], transition = clear_override(self._records[name], actor, now_ns)
        return transition

    def _windows_by_breaker(self, windows: Sequence[AnomalyWindow], now_ns: int) -> dict[str, AnomalyWindow]:
        """The worst window of each breaker; breakers that are missing are made."""
        by_name: dict[str, AnomalyWindow] = {}
        for window in windows:
            if window.severity < self._min_severity:
                continue
            for scope in scopes_of(window, self._kinds):
                name = scope_name(scope)
                if name not in self._records and not self._make(name, scope, now_ns):
                    continue
                worse = by_name.get(name)
                if worse is None or (window.severity, window.score) > (worse.severity, worse.score):
                    by_name[name] = window
        return by_name

    def _make_named(self, name: str, now_ns: int) -> None:
        scope = scope_named(name)
        if scope is None:
            raise ValueError(f"no breaker can be named {name!r}; it is one of {SCOPE_FORMS}")
        if not self._make(name, scope, now_ns):
            raise ValueError(
                f"there are {len(self._records)} breakers, as many as [breakers] max_breakers allows"
            )

    def _make(self, name: str, scope: Entity, now_ns: int) -> bool:
        if len(self._records) >= self._max_breakers:
            idle = [
                other
                for other, record in self._records.items()
                if record.state is BreakerState.closed
                and record.override is None
                and now_ns - record.since_ns > _FORGET_NS
            ]
            if not idle:
                self.refused += 1
                return False
            oldest = min(idle, key=lambda other: self._records[other].since_ns)
            del self._records[oldest]
            self._recent.pop(oldest, None)
        self._records[name] = BreakerRecord(name, scope, self._enforced, since_ns=now_ns, updated_ns=now_ns)
        return True

    def _evidence(self, record: BreakerRecord, window: AnomalyWindow | None, pulse: Pulse) -> Evidence:
        traffic = traffic_of(record.scope, pulse)
        recent = self._recent.setdefault(record.name, deque())
        ended = traffic.ended_well + traffic.ended_badly
        if ended:
            recent.append((pulse.at_ns, ended))
        while recent and pulse.at_ns - recent[0][0] > _TRAFFIC_NS:
            recent.popleft()
        is_hard = window is not None and window.kind in _HARD_KINDS
        # A window that is open while nothing is seen stands for what was; only hard facts still come in.
        is_blind = PROBES_OFF in pulse.stale and not is_hard
        return Evidence(
            window_id=None if window is None else window.id,
            window_opened_ns=0 if window is None else window.opened_ns,
            reason="" if window is None else window.cause.summary,
            is_hard=is_hard,
            is_stale=is_blind or (bool(pulse.stale) and window is None),
            samples=traffic.inflight + sum(count for _, count in recent),
            ended_well=traffic.ended_well,
            ended_badly=traffic.ended_badly,
            may_open=self._may_open(record),
        )

    def _may_open(self, record: BreakerRecord) -> bool:
        """Whether one more instance may be shed: never all of them, at least one."""
        if record.scope.kind is not EntityKind.instance or not record.enforced:
            return True
        open_now = sum(
            other.scope.kind is EntityKind.instance and other.state is BreakerState.open
            for other in self._records.values()
            if other.name != record.name
        )
        return open_now < max(1, int(self._max_open_ratio * len(self._seen_ns)))

    def _note_instances(self, pulse: Pulse) -> None:
        """Instances that the host has: those that held a process in the last minute."""
        for instance in set(pulse.processes["instance"].tolist()) - {0}:
            self._seen_ns[pulse.names.instances[instance]] = pulse.at_ns
        self._seen_ns = {
            name: seen for name, seen in self._seen_ns.items() if pulse.at_ns - seen < 60_000_000_000
        }
