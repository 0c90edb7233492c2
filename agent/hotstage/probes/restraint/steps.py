# SPDX-License-Identifier: Apache-2.0
"""When a process is stepped down, how far, and when it comes back: one process, no clock, no file, no kernel.

Above the limit for a whole window: to the first level whose cost at the same calls is within it, else to
counts alone. Far above it (`detach_ratio`) a third of a window is enough, and where counts alone are still
above that, the process is let go. Back up after a quiet time, to the first level that would stay well below
the limit; one that was let go cannot be estimated, so counting is tried, each time after twice the wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hotstage.config.governor import GovernorConfig
from hotstage.probes.maps.levels import Level

MARGIN = 0.75
"""A level is taken back when its cost would stay below this share of the limit."""
LONGEST_WAIT = 64
"""Times `quiet_seconds`: what a process that was let go again and again waits at most."""
_EARLY = 1 / 3
"""Share of a window that is enough to judge what is far above the limit."""
_COUNTING = (Level.full, Level.no_stacks, Level.tails_only, Level.counts_only)


@dataclass(frozen=True, slots=True)
class Judged:
    """What is known of a window. `ratios`: level → cost ÷ CPU time if the same calls were made at it."""

    at_ns: int
    window_ns: int
    ratios: Mapping[Level, float] | None
    """None: unknown (not calibrated, too little CPU time, or nothing is counted)."""
    cores: float | None = None
    """What the probes cost now, in cores."""


class Steps:
    """`advance` about once a second; `level` is what holds from then on."""

    def __init__(self, config: GovernorConfig) -> None:
        self._config = config
        self._window_ns = round(config.window_seconds * 1e9)
        self._quiet_ns = round(config.quiet_seconds * 1e9)
        self._calm_since_ns: int | None = None
        self._detaches = 0
        self.level = Level.full
        self.since_ns: int | None = None
        """When it was last moved; None: never."""
        self.reason = ""

    def advance(self, judged: Judged) -> bool:
        """Whether the level has moved."""
        before = self.level
        if self.level is Level.detached:
            self._try_again(judged)
        elif judged.ratios is None or not self._step_down(judged, judged.ratios):
            self._step_up(judged, judged.ratios)
        return self.level is not before

    def retry_ns(self) -> int | None:
        """When a process that was let go is tried again; None while it is not."""
        if self.level is not Level.detached or self.since_ns is None:
            return None
        waits = min(1 << min(max(self._detaches - 1, 0), 16), LONGEST_WAIT)
        return self.since_ns + self._quiet_ns * waits

    def _step_down(self, judged: Judged, ratios: Mapping[Level, float]) -> bool:
        now = ratios[self.level]
        config = self._config
        if (judged.cores or 0.0) <= config.ignored_cores or now <= config.limit_ratio:
            return False
        is_far = now > config.detach_ratio
        if judged.window_ns < self._window_ns * (_EARLY if is_far else 1):
            self._calm_since_ns = None
            return True
        lower = [level for level in _COUNTING if level > self.level]
        enough = next((level for level in lower if ratios[level] <= config.limit_ratio), None)
        if enough is not None:
            return self._move(enough, judged, now)
        if ratios[Level.counts_only] > config.detach_ratio:
            self._detaches += 1
            return self._move(Level.detached, judged, now)
        if lower:
            return self._move(Level.counts_only, judged, now)
        self._calm_since_ns = None
        return True

    def _step_up(self, judged: Judged, ratios: Mapping[Level, float] | None) -> None:
        if self.level is Level.full:
            if self.since_ns is not None and judged.at_ns - self.since_ns > LONGEST_WAIT * self._quiet_ns:
                self._detaches = 0
            return
        upper = next(
            (level for level in _COUNTING if level < self.level and self._bears(level, judged)), None
        )
        if upper is None:
            self._calm_since_ns = None
            return
        if self._calm_since_ns is None:
            self._calm_since_ns = judged.at_ns
        if judged.at_ns - self._calm_since_ns >= self._quiet_ns:
            self._move(upper, judged, ratios[upper] if ratios is not None else 0.0)

    def _bears(self, level: Level, judged: Judged) -> bool:
        """Whether the level would stay well below what is allowed; what costs next to nothing always does."""
        if judged.cores is not None and judged.cores <= self._config.ignored_cores / 2:
            return True
        return judged.ratios is not None and judged.ratios[level] <= self._config.limit_ratio * MARGIN

    def _try_again(self, judged: Judged) -> None:
        due_ns = self.retry_ns()
        if due_ns is not None and judged.at_ns >= due_ns:
            self._move(Level.counts_only, judged, None)

    def _move(self, level: Level, judged: Judged, ratio: float | None) -> bool:
        is_down = level > self.level
        self.level, self.since_ns, self._calm_since_ns = level, judged.at_ns, None
        if ratio is None:
            self.reason = "tried again after its wait"
        elif is_down:
            self.reason = (
                f"probes cost {ratio:.1%} of its CPU time, {self._config.limit_ratio:.1%} are allowed"
            )
        else:
            self.reason = f"probes would cost {ratio:.1%} of its CPU time"
        return True
