# SPDX-License-Identifier: Apache-2.0
"""A process died with requests in flight. One that ends with none has just been stopped and is no finding."""

from __future__ import annotations

from dataclasses import dataclass

from hotstage.detect.finding import Evidence, Finding, Severity
from hotstage.frame.entity import Entity, EntityKind
from hotstage.stages.pulse import Pulse
from hotstage.stages.spans import OUTCOME_LOST

KIND = "process_death"

ACTIVE_NS = 5_000_000_000
_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class _Death:
    at_ns: int
    instance: str | None
    requests: int


class Death:
    """Detector `process_death`; a death is shown for five seconds. Not thread-safe."""

    def __init__(self) -> None:
        self._deaths: dict[int, _Death] = {}

    def observe_pulse(self, pulse: Pulse) -> list[Finding]:
        if not self._deaths and not pulse.processes["is_dead"].any():
            return []
        lost = pulse.requests_ended[pulse.requests_ended["outcome"] == OUTCOME_LOST]
        for row in pulse.processes[pulse.processes["is_dead"]]:
            pid = int(row["pid"])
            requests = int((lost["pid"] == pid).sum())
            if requests and len(self._deaths) < _REMEMBERED:
                instance = pulse.names.instances[int(row["instance"])] or None
                self._deaths[pid] = _Death(pulse.at_ns, instance, requests)
        self._deaths = {
            pid: death for pid, death in self._deaths.items() if pulse.at_ns - death.at_ns < ACTIVE_NS
        }
        return [_finding(pid, death, pulse.at_ns) for pid, death in self._deaths.items()]


def _finding(pid: int, death: _Death, now_ns: int) -> Finding:
    who = f"{death.instance} (pid {pid})" if death.instance else f"pid {pid}"
    return Finding(
        detector=KIND,
        kind=KIND,
        entity=Entity(EntityKind.instance, instance=death.instance, pid=pid),
        since_ns=death.at_ns,
        at_ns=now_ns,
        score=1.0,
        limit=1.0,
        summary=f"{who} died with {death.requests} requests in flight",
        severity=Severity.critical,
        confidence=0.99,
        evidence=(
            Evidence(
                "inflight", float(death.requests), 0.0, "", death.at_ns, "requests lost with the process"
            ),
        ),
        is_hard=True,
    )
