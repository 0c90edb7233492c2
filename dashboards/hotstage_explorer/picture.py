# SPDX-License-Identifier: Apache-2.0
"""What one look at an agent holds: frozen rows and the picture they make. No I/O, no text for people.

Missing values are None. Ratios are 0..1, times in seconds, `_ns` are wall-clock nanoseconds since 1970 (UTC);
`monotonic` values are this process's own clock in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

Row = TypeVar("Row")
Link = Literal["starting", "live", "unreachable"]


@dataclass(frozen=True, slots=True)
class HeatPoint:
    """One endpoint on one instance; `p95_seconds` is None below 20 requests in the last 60 s.

    `requests` ended since the agent began to see this point.
    """

    endpoint: str
    instance: str
    modality: str
    heat: float | None = None
    request_rate: float | None = None
    p95_seconds: float | None = None
    requests: int | None = None
    load_ratio: float | None = None
    cpu_load_ratio: float | None = None
    memory_load_ratio: float | None = None
    deviation: float | None = None

    @property
    def is_drawable(self) -> bool:
        """All three coordinates are known; a point without one is listed, never drawn at 0."""
        return None not in (self.heat, self.p95_seconds, self.load_ratio)


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage × modality; quantiles over the last 60 s, None below 20 requests."""

    stage: str
    modality: str
    requests: int | None = None
    inflight: int | None = None
    oldest_age_seconds: float | None = None
    rate: float | None = None
    p50_seconds: float | None = None
    p95_seconds: float | None = None
    p99_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    column: str
    value: float | None
    limit: float | None
    unit: str
    note: str


@dataclass(frozen=True, slots=True)
class Candidate:
    kind: str
    confidence: float | None
    why: str


@dataclass(frozen=True, slots=True)
class WindowRow:
    id: str
    kind: str
    severity: str
    is_open: bool
    opened_ns: int | None
    closed_ns: int | None
    entity: tuple[tuple[str, str], ...] = ()
    cause: str = ""
    confidence: float | None = None
    candidates: tuple[Candidate, ...] = ()
    evidence: tuple[Evidence, ...] = ()

    def names(self, what: str) -> str | None:
        """The entity's `what` (stage, modality, instance, …), None where the window does not name it."""
        return next((value for key, value in self.entity if key == what), None)


@dataclass(frozen=True, slots=True)
class BreakerRow:
    name: str
    state: str
    is_enforced: bool
    since_ns: int | None
    reason: str = ""
    override: str | None = None
    is_stale: bool = False


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the probes see; `counted`, `open` and `lost` are calls since the coverage epoch began."""

    loader: str | None = None
    rung: str | None = None
    attached: int | None = None
    missed: int | None = None
    processes: int | None = None
    counted: int | None = None
    open: int | None = None
    lost: int | None = None


@dataclass(frozen=True, slots=True)
class Stages:
    rows: tuple[StageRow, ...] = ()
    unattributed_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Section(Generic[Row]):
    """One body of the agent: its last good value, when that was read, why the newest read failed."""

    value: Row
    read_at: float | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Why there is no live data: a sentence and what to do."""

    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Picture:
    """All that a page shows, as of one read: `version` counts reads, `tick` is the agent's own counter."""

    address: str
    version: int = 0
    link: Link = "starting"
    problem: Problem | None = None
    host: str | None = None
    tick: int | None = None
    tick_wall_ns: int | None = None
    tick_moved_at: float | None = None
    says_stale: bool = False
    heat: Section[tuple[HeatPoint, ...]] = field(default_factory=lambda: Section(()))
    heat_basis: str | None = None
    stages: Section[Stages] = field(default_factory=lambda: Section(Stages()))
    windows: Section[tuple[WindowRow, ...]] = field(default_factory=lambda: Section(()))
    breakers: Section[tuple[BreakerRow, ...]] = field(default_factory=lambda: Section(()))
    coverage: Section[Coverage] = field(default_factory=lambda: Section(Coverage()))

    def age_seconds(self, now: float) -> float | None:
        """Seconds since the agent's tick was last seen to move, None before the first one."""
        return None if self.tick_moved_at is None else max(0.0, now - self.tick_moved_at)
