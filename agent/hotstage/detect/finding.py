# SPDX-License-Identifier: Apache-2.0
"""One detector's verdict on one entity, as of now. Values only.

Findings are level-triggered: a detector returns what is firing at this moment, every time it is asked;
windows give them a beginning and an end. A detector that knows how it ended may say so once (`is_over`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from hotstage.frame.entity import Entity


class Severity(IntEnum):
    """Ordered, so that `max` works; the name is what people and JSON see."""

    info = 0
    warning = 1
    critical = 2


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that speaks for a finding, with what it was held against."""

    column: str
    value: float | None
    limit: float | None = None
    unit: str = ""
    since_ns: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """`score` is value ÷ limit in the detector's own measure: 1 is just firing, 3 is three times over."""

    detector: str
    kind: str
    entity: Entity
    since_ns: int
    at_ns: int
    score: float
    limit: float
    summary: str
    severity: Severity = Severity.warning
    confidence: float = 0.8
    evidence: tuple[Evidence, ...] = ()
    is_hard: bool = False
    """A fact by itself (an XID, a death): true even while other telemetry is lost."""
    is_over: bool = False
    """It fires no more: the last word on what did, told once, for the record that closes."""
    labels: Mapping[str, str] = field(default_factory=dict)
