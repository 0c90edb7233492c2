# SPDX-License-Identifier: Apache-2.0
"""An anomaly from opening to close, with its ranked cause and the evidence for it. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hotstage.detect.finding import Evidence, Severity
from hotstage.frame.entity import Entity


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible cause; `why` is a sentence with numbers in it."""

    kind: str
    confidence: float
    why: str
    entity: Entity


@dataclass(frozen=True, slots=True)
class Cause:
    """The best candidate, and all of them, best first."""

    kind: str
    summary: str
    confidence: float
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class AnomalyWindow:
    """Times are CLOCK_MONOTONIC ns; `closed_ns` is None while it is open. `score` is the highest seen."""

    id: str
    kind: str
    severity: Severity
    entity: Entity
    opened_ns: int
    updated_ns: int
    peak_ns: int
    closed_ns: int | None
    score: float
    cause: Cause
    evidence: tuple[Evidence, ...]
    findings: int
    """How many distinct (kind, entity) pairs it holds."""
    labels: Mapping[str, str] = field(default_factory=dict)
    caused_by: str | None = None
    """Id of the window whose cause explains this one too: an XID on the GPU that its process computes on."""

    @property
    def is_open(self) -> bool:
        return self.closed_ns is None


@dataclass(frozen=True, slots=True)
class WindowUpdate:
    """What one step changed, and all that is open after it. A window is in at most one of the first three."""

    opened: tuple[AnomalyWindow, ...] = ()
    updated: tuple[AnomalyWindow, ...] = ()
    closed: tuple[AnomalyWindow, ...] = ()
    open: tuple[AnomalyWindow, ...] = ()
    is_stale: bool = False
    """The telemetry could not show absence, so nothing was closed."""
