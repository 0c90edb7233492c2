# SPDX-License-Identifier: Apache-2.0
"""What one look at a source holds: frozen rows and the picture they make. No I/O.

Missing values are None. Ratios are 0..1, times in seconds, `_ns` are wall-clock nanoseconds since 1970 (UTC);
`monotonic` values are this process's own clock in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar

Row = TypeVar("Row")
Link = Literal["starting", "live", "unreachable"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Who is asked, in the words that the page uses, and why it has no more than it has."""

    name: str
    """As in a sentence: the agent, Prometheus 2.42.0."""

    moment: str = "tick"
    """What its newest data is called."""

    not_said: str = "the agent has not said"
    no_cause: str = "No cause named yet."
    no_window: str = "None is open and none has closed since the agent started."
    notes: tuple[tuple[str, str], ...] = ()
    """(part of the page, what its numbers are and are not), for parts that need the word."""

    def note(self, part: str) -> str | None:
        return next((said for name, said in self.notes if name == part), None)


AGENT = Origin("the agent")


@dataclass(frozen=True, slots=True)
class HeatPoint:
    """One endpoint on one instance; `p95_seconds` is None below 20 requests in the last 60 s.

    `requests` ended since the agent began to see this point. `host` is "" where there is but one; `is_old`
    says that its host has fallen silent while others speak.
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
    host: str = ""
    is_old: bool = False

    @property
    def is_drawable(self) -> bool:
        """All three coordinates are known, and of now; other points are listed, never drawn at 0."""
        return not self.is_old and None not in (self.heat, self.p95_seconds, self.load_ratio)

    @property
    def place(self) -> str:
        """Its instance, and of which host where there are several."""
        return f"{self.instance} of {self.host}" if self.host else self.instance

    @property
    def key(self) -> str:
        """Tells it from all others, also from one of the same name on another host."""
        return "|".join((*((self.host,) if self.host else ()), self.endpoint, self.instance, self.modality))


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
    host: str = ""


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
    host: str = ""
    count: int = 1
    figures_ns: int | None = None
    """What the cause's sentence and the evidence are of; None where the source does not tell."""
    peak_ns: int | None = None
    score: float | None = None
    """How many times over its limit it was at `peak_ns`."""
    caused_by: str = ""
    """Id of the window whose cause explains this one too."""
    is_about: bool = False
    """Its times are those of samples: it opened and closed up to one interval before them."""

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
    host: str = ""
    override_says: str = ""
    """Who set the override and why."""
    override_until_ns: int | None = None


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
    """`quantiles_over` and `rate_over` say what the rows' figures are over."""

    rows: tuple[StageRow, ...] = ()
    unattributed_ratio: float | None = None
    quantiles_over: str = "last 60 s"
    rate_over: str = "requests/s"


@dataclass(frozen=True, slots=True)
class HostRow:
    """One host of several: when its newest data was made, and what it says of itself.

    `sampled_at` is monotonic; `is_scraped` None: nobody says.
    """

    name: str
    sampled_at: float | None = None
    sampled_ns: int | None = None
    stale_after_seconds: float = 5.0
    is_scraped: bool | None = None
    coverage: Coverage = field(default_factory=Coverage)
    unattributed_ratio: float | None = None

    def age_seconds(self, now: float) -> float | None:
        return None if self.sampled_at is None else max(0.0, now - self.sampled_at)

    def is_old(self, now: float) -> bool:
        age = self.age_seconds(now)
        return self.is_scraped is False or age is None or age > self.stale_after_seconds


@dataclass(frozen=True, slots=True)
class Section(Generic[Row]):
    """One part of a picture: its last good value, when that was read, why the newest read failed."""

    value: Row
    read_at: float | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Why there is no live data: in two words, in a sentence, and what to do."""

    title: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Picture:
    """All that a page shows, as of one read: `version` counts reads, `tick` is the agent's own counter."""

    address: str
    origin: Origin = AGENT
    version: int = 0
    link: Link = "starting"
    problem: Problem | None = None
    host: str | None = None
    tick: int | None = None
    tick_wall_ns: int | None = None
    tick_moved_at: float | None = None
    stale_after_seconds: float = 5.0
    says_stale: bool = False
    off_since: str | None = None
    """Since when the host's probes are switched off, as the source writes it; None: they are on."""
    caveats: tuple[str, ...] = ()
    """What the source itself says against its answer."""

    hosts: tuple[HostRow, ...] = ()
    """By name; empty where the source is one host and no more."""

    heat: Section[tuple[HeatPoint, ...]] = field(default_factory=lambda: Section(()))
    heat_basis: str | None = None
    stages: Section[Stages] = field(default_factory=lambda: Section(Stages()))
    windows: Section[tuple[WindowRow, ...]] = field(default_factory=lambda: Section(()))
    breakers: Section[tuple[BreakerRow, ...]] = field(default_factory=lambda: Section(()))
    coverage: Section[Coverage] = field(default_factory=lambda: Section(Coverage()))

    def age_seconds(self, now: float) -> float | None:
        """Seconds since the agent's tick was last seen to move, None before the first one."""
        return None if self.tick_moved_at is None else max(0.0, now - self.tick_moved_at)

    def of_host(self, name: str) -> Picture:
        """The same with the rows of one host only, and its own figures; an unknown name keeps all."""
        chosen = tuple(host for host in self.hosts if host.name == name)
        if not chosen:
            return self
        host = chosen[0]
        stages = replace(
            self.stages.value,
            rows=tuple(row for row in self.stages.value.rows if row.host == name),
            unattributed_ratio=host.unattributed_ratio,
        )
        return replace(
            self,
            host=name,
            hosts=chosen,
            tick_wall_ns=host.sampled_ns,
            tick_moved_at=host.sampled_at,
            stale_after_seconds=host.stale_after_seconds,
            heat=_of_host(self.heat, name),
            stages=replace(self.stages, value=stages),
            windows=_of_host(self.windows, name),
            breakers=_of_host(self.breakers, name),
            coverage=replace(self.coverage, value=host.coverage),
        )

    def seen_at(self, now: float) -> Picture:
        """The same with the points of silent hosts told from the others', unless all are silent."""
        silent = {host.name for host in self.hosts if host.is_old(now)}
        if not silent or len(silent) == len(self.hosts):
            return self
        points = tuple(replace(p, is_old=True) if p.host in silent else p for p in self.heat.value)
        return replace(self, heat=replace(self.heat, value=points))


Placed = TypeVar("Placed", HeatPoint, WindowRow, BreakerRow)


def _of_host(section: Section[tuple[Placed, ...]], name: str) -> Section[tuple[Placed, ...]]:
    return replace(section, value=tuple(row for row in section.value if row.host == name))
