# SPDX-License-Identifier: Apache-2.0
"""What a circuit breaker remembers, and one change of it. Values only; times are CLOCK_MONOTONIC ns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hotstage.frame.entity import Entity


class BreakerState(StrEnum):
    """The first three move by themselves; the others are overrides and show while one lasts."""

    closed = "closed"
    open = "open"
    half_open = "half_open"
    forced_open = "forced_open"
    disabled = "disabled"
    metrics_only = "metrics_only"


class OverrideAction(StrEnum):
    force_open = "force_open"
    disable = "disable"
    metrics_only = "metrics_only"


SHOWN_AS = {
    OverrideAction.force_open: BreakerState.forced_open,
    OverrideAction.disable: BreakerState.disabled,
    OverrideAction.metrics_only: BreakerState.metrics_only,
}


@dataclass(frozen=True, slots=True)
class Override:
    """A person's decision; it ends by itself at `until_ns`."""

    action: OverrideAction
    actor: str
    reason: str
    set_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of the shown state."""

    name: str
    scope: Entity
    from_state: BreakerState
    to_state: BreakerState
    at_ns: int
    reason: str
    window_id: str | None = None
    actor: str | None = None
    enforced: bool = False
    """Whether callers heed `to_state`: the record's `is_heeded`."""


@dataclass(frozen=True, slots=True)
class BreakerRecord:
    """Everything a breaker knows; the machine returns a new one for every step."""

    name: str
    scope: Entity
    enforced: bool
    """The policy, `[breakers] enforced`; with overrides it becomes `is_heeded`."""
    state: BreakerState = BreakerState.closed
    """`closed`, `open` or `half_open`: it goes on moving under an override."""
    since_ns: int = 0
    updated_ns: int = 0
    reason: str = "new"
    window_id: str | None = None
    """The window that opened it; kept until it closes again."""
    override: Override | None = None
    is_stale: bool = False
    bad_bits: int = 0
    """The last evaluations, newest in bit 0: 1 = a window was open."""
    evaluations: int = 0
    cool_down_ns: int = 0
    """How long this opening must last; doubles with each relapse."""
    relapses: int = 0
    clear_since_ns: int | None = None
    """Since when no window is open in its scope; None while one is, or unknown."""
    ended_well: int = 0
    ended_badly: int = 0
    """Requests that ended in its scope since it became half-open."""
    transitions: tuple[Transition, ...] = ()
    """The last ones, oldest first, bounded."""

    @property
    def shown(self) -> BreakerState:
        """The state callers and people see: the override's, while there is one."""
        return self.state if self.override is None else SHOWN_AS[self.override.action]

    @property
    def is_heeded(self) -> bool:
        """Whether callers heed it now; what every surface calls `enforced`.

        A person's trip is heeded in dry run, too; `disabled` and `metrics_only` shed nothing anywhere.
        """
        return self.enforced if self.override is None else self.shown is BreakerState.forced_open

    @property
    def tells_stale(self) -> bool:
        """Whether callers fall back to the policy of stale breakers: a person's word needs no data."""
        return self.is_stale and self.shown not in (BreakerState.forced_open, BreakerState.disabled)
