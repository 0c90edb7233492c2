# SPDX-License-Identifier: Apache-2.0
"""Slow or not, for one stream of samples: a capped cumulative sum and k of the last n, with hysteresis.

Samples are log2 of actual ÷ usual duration, in the order in which they became known. Pure; no spans here.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median

from hotstage.detect.baseline import Usual
from hotstage.detect.statistics.cusum import Cusum
from hotstage.detect.statistics.exceedance import Exceedances

PERSIST_NS = 500_000_000
"""A pause hits all requests in flight at once, and good samples follow at once; a fault goes on."""

SPREAD_SAMPLES = 3
"""So many slow samples before that time are no pause either: nothing more has to be waited for."""

CLEAR_AFTER_NS = 2_000_000_000
CLEAR_SAMPLES = 3
"""An alarm ends after so many good samples in a row, over at least that time."""

STORY_NS = 15_000_000_000
"""Slow samples older than this do not belong to an alarm that comes now."""

QUIET_CLEAR_NS = 10_000_000_000
RECENT_NS = 30_000_000_000

_SUM_LIMIT = 3.9
_PER_EXCEEDING, _EXCEEDING_FREE = 40.0, 0.01
"""Where usual samples are slow now and then, more is asked: 1.6 for 5 % of them."""

_AT_ONCE = 1.5
_AT_ONCE_NS = 300_000_000
"""What may be added to the sum in this time: things that end together after a pause are nearly one sample."""

_KEPT = 16


@dataclass(frozen=True, slots=True)
class Sample:
    """`paid`: what the same request paid in already while it was open; None = nothing."""

    at_ns: int
    excess: float
    seconds: float
    instance: int
    is_ended: bool
    paid: float | None


class Judge:
    """Feed `take`, then `conclude` once a pulse. Not thread-safe."""

    def __init__(self, factor: float) -> None:
        self._log_factor = math.log2(factor)
        self.suspicious = 0.9 * self._log_factor
        """From this excess on a sample is suspicious, whatever the scatter."""
        self._sum = Cusum(_SUM_LIMIT)
        self._exceeded = Exceedances()
        self._slow: deque[Sample] = deque(maxlen=_KEPT)
        self._recent: deque[tuple[int, bool]] = deque(maxlen=2 * _KEPT)
        self._over_since_ns: int | None = None
        self._fine_in_a_row = 0
        self._allowance = _AT_ONCE
        self._allowed_ns = 0
        self._has_news = False
        self._sampled_ns = 0
        self.since_ns = 0
        self.is_firing = False

    @property
    def has_news(self) -> bool:
        """Whether there is anything to conclude: a sample, or something begun that time may end."""
        return self._has_news or self.is_firing or self._over_since_ns is not None

    @property
    def is_suspicious(self) -> bool:
        return self.is_firing or self._sum.value > 0.4 * self._sum.limit

    @property
    def fine_in_a_row(self) -> int:
        """Good samples since the last slow one."""
        return self._fine_in_a_row

    @property
    def affected(self) -> int:
        """Slow samples among the last ones, at most 16."""
        return len(self._slow)

    def slow_share(self, since_ns: int) -> tuple[int, float]:
        """(samples, share of them that were slow) since then, of the last 32; share 0 without any."""
        slow = [is_slow for at_ns, is_slow in self._recent if at_ns >= since_ns]
        return len(slow), sum(slow) / len(slow) if slow else 0.0

    def is_recent(self, now_ns: int) -> bool:
        return now_ns - self._sampled_ns < RECENT_NS

    def level(self, usual: Usual, slack: float) -> float:
        """From this excess on a sample counts as slow."""
        return max(self.suspicious, 2.6 * usual.scatter) + slack

    def take(self, sample: Sample, usual: Usual, slack: float) -> float:
        """One sample → what its request has paid in all. `slack` is what the load excuses (log2)."""
        wide = max(usual.scatter - 0.35, 0.0)
        drift = 0.68 * self._log_factor + wide + slack
        level = self.level(usual, slack)
        tail = _PER_EXCEEDING * max(usual.exceed_ratio - _EXCEEDING_FREE, 0.0)
        self._sum.limit = max(_SUM_LIMIT + tail, 20 * usual.scatter**2)
        refill = _AT_ONCE * (sample.at_ns - self._allowed_ns) / _AT_ONCE_NS
        self._allowance, self._allowed_ns = min(self._allowance + refill, _AT_ONCE), sample.at_ns
        self._has_news = True
        step = Cusum.step(sample.excess, drift)
        is_slow = sample.excess > level
        if sample.paid is None:
            if not is_slow or self._allowance > 0:
                self._exceeded.add(is_slow)
            self._add(step)
            self._recent.append((sample.at_ns, is_slow))
        else:
            self._add(max(step - sample.paid, 0.0))
            step = max(step, sample.paid)
        self._sampled_ns = sample.at_ns
        self._fine_in_a_row = 0 if is_slow else self._fine_in_a_row + 1
        if is_slow:
            self._note_slow(sample)
        return step

    def _add(self, step: float) -> None:
        allowed = min(step, self._allowance)
        self._allowance -= max(allowed, 0.0)
        self._sum.add(allowed)

    def conclude(self, now_ns: int, usual: Usual, *, has_open: bool, others_fine: bool = False) -> None:
        """Set `is_firing` for this pulse. `others_fine`: the stage as a whole is fine by its last samples."""
        if not self.has_news:
            return
        self._has_news = False
        is_over = self._sum.is_over or self._exceeded.is_over(usual.exceed_ratio)
        if self.is_firing:
            needed = 1 if others_fine else CLEAR_SAMPLES
            self._try_to_clear(now_ns, has_open=has_open, needed=needed)
            return
        if self._sum.value == 0.0 and not is_over and self._exceeded.count(8) == 0:
            self._slow.clear()
        if not is_over:
            self._over_since_ns = None
            return
        self._over_since_ns = self._over_since_ns or now_ns
        story = [each.at_ns for each in self._slow if now_ns - each.at_ns <= STORY_NS]
        if not self._slow:
            # Many samples that are each a little longer: more than usual, and none of them slow.
            return
        is_spread = sum(now_ns - at_ns >= PERSIST_NS for at_ns in story) >= SPREAD_SAMPLES
        if is_spread or now_ns - self._over_since_ns >= PERSIST_NS:
            self.is_firing, self.since_ns = True, min(story, default=self._over_since_ns)

    def factor(self) -> float:
        """How many times its usual duration the slow samples took, by their median; 1 with none."""
        return float(2.0 ** median(sample.excess for sample in self._slow)) if self._slow else 1.0

    def typical_seconds(self) -> float:
        return median(sample.seconds for sample in self._slow) if self._slow else math.nan

    def oldest_open_seconds(self, now_ns: int) -> float:
        """The highest age among slow samples of the last second that were still open; 0 with none."""
        return max(
            (
                each.seconds
                for each in self._slow
                if not each.is_ended and now_ns - each.at_ns < 1_000_000_000
            ),
            default=0.0,
        )

    def _note_slow(self, sample: Sample) -> None:
        """A request counts once here: its newer, longer measure takes the place of the older one."""
        if sample.paid is not None:
            for place, each in enumerate(self._slow):
                if not each.is_ended and each.instance == sample.instance and each.seconds <= sample.seconds:
                    self._slow[place] = sample
                    return
        self._slow.append(sample)

    def _try_to_clear(self, now_ns: int, *, has_open: bool, needed: int) -> None:
        last_slow_ns = max((each.at_ns for each in self._slow), default=0)
        calm = self._fine_in_a_row >= needed and now_ns - last_slow_ns >= CLEAR_AFTER_NS
        quiet = not has_open and now_ns - self._sampled_ns >= QUIET_CLEAR_NS
        if calm or quiet:
            self.is_firing = False
            self._sum.reset()
            self._exceeded.reset()
            self._slow.clear()
            self._over_since_ns = None
