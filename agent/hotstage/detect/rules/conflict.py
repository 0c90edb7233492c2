# SPDX-License-Identifier: Apache-2.0
"""Visual and text tokens compete for the memory of one GPU (RULES b): the kernel's verdict on an allocation,
shown at once and for a while, the same process and device once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hotstage.config.conflict import ConflictConfig
from hotstage.detect.finding import Evidence, Finding, Severity
from hotstage.frame.entity import Entity, EntityKind
from hotstage.probes.samples import ConflictVerdict
from hotstage.stages.pulse import Pulse
from hotstage.stages.stage import modality_name, stage_name

KIND = "token_conflict"

_REMEMBERED = 256
_SCORE_MAX = 100.0
_CONFIDENCE = {"known": 0.95, "estimated": 0.65}
_SEVERITY = {"known": Severity.warning}
"""Tokens that are estimated open a window, and move no breaker that is set as it comes."""
_WITHOUT_FRAGMENTATION = 0.1


@dataclass(frozen=True, slots=True)
class _Active:
    first_ns: int
    last: ConflictVerdict
    count: int


class TokenConflict:
    """Detector `token_conflict`. Not thread-safe."""

    def __init__(self, config: ConflictConfig) -> None:
        self._config = config
        self._active: dict[tuple[int, int], _Active] = {}

    def take_over(self, config: ConflictConfig) -> None:
        """Other limits from now on; conflicts that are shown go on."""
        self._config = config

    def observe_pulse(self, pulse: Pulse) -> list[Finding]:
        """Conflicts of the last seconds (`active_seconds` since a process's last)."""
        for verdict in pulse.conflicts:
            key = verdict.pid, verdict.device
            known = self._active.get(key)
            if known is not None:
                self._active[key] = replace(known, last=verdict, count=known.count + 1)
            elif len(self._active) < _REMEMBERED:
                self._active[key] = _Active(verdict.at_ns, verdict, 1)
        active_ns = round(self._config.active_seconds * 1e9)
        self._active = {
            key: each for key, each in self._active.items() if pulse.at_ns - each.last.at_ns < active_ns
        }
        return [self._finding(each, pulse) for each in self._active.values()]

    def _finding(self, active: _Active, pulse: Pulse) -> Finding:
        verdict = active.last
        instance = _instance_of(verdict.pid, pulse)
        stage, modality = stage_name(verdict.stage), modality_name(verdict.modality)
        unknown_cut = verdict.fragmentation_ratio is None
        return Finding(
            detector=KIND,
            kind=KIND,
            entity=Entity(EntityKind.instance, instance=instance, pid=verdict.pid),
            since_ns=active.first_ns,
            at_ns=pulse.at_ns,
            score=min(_SCORE_MAX, verdict.predicted_bytes / max(1, verdict.headroom_bytes)),
            limit=1.0,
            summary=(
                f"{instance or 'A server'} (pid {verdict.pid}) allocates {_mib(verdict.bytes)} on its GPU "
                f"{verdict.device} in {stage}, while {verdict.visual_tokens} visual and "
                f"{verdict.text_tokens} text tokens are in flight: they need {_mib(verdict.predicted_bytes)} "
                f"more, {_mib(verdict.headroom_bytes)} are left"
            ),
            severity=_SEVERITY.get(verdict.tokens_basis, Severity.info),
            confidence=_CONFIDENCE.get(verdict.tokens_basis, 0.5) - _WITHOUT_FRAGMENTATION * unknown_cut,
            evidence=self._evidence(active),
            is_hard=True,
            labels={"stage": stage, "modality": modality, "tokens": verdict.tokens_basis},
        )

    def _evidence(self, active: _Active) -> tuple[Evidence, ...]:
        verdict, limits = active.last, self._config
        basis = f"tokens are {verdict.tokens_basis}"
        cut = verdict.fragmentation_ratio
        cut_note = f"basis {verdict.fragmentation_basis}" + (": no term" if cut is None else "")
        room = f"as of {verdict.headroom_age_ns / 1e9:.1f} s before"
        since = active.first_ns
        return (
            Evidence(
                "predicted_bytes",
                float(verdict.predicted_bytes),
                float(verdict.headroom_bytes),
                "bytes",
                since,
                room,
            ),
            Evidence(
                "allocation_bytes",
                float(verdict.bytes),
                float(limits.allocation_bytes),
                "bytes",
                since,
                verdict.call,
            ),
            Evidence(
                "visual_tokens", float(verdict.visual_tokens), float(limits.visual_tokens), "", since, basis
            ),
            Evidence("text_tokens", float(verdict.text_tokens), float(limits.text_tokens), "", since, basis),
            Evidence("memory_fragmentation_ratio", cut, limits.fragmentation_ratio, "", since, cut_note),
            Evidence(
                "conflicts", float(active.count), 1.0, "", since, f"{verdict.held_back} more were not told"
            ),
        )


def _instance_of(pid: int, pulse: Pulse) -> str | None:
    rows = pulse.processes[pulse.processes["pid"] == pid]
    return (pulse.names.instances[int(rows["instance"][0])] or None) if len(rows) else None


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"
