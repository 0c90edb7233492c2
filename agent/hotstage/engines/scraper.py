# SPDX-License-Identifier: Apache-2.0
"""One look after the other at one engine: what it told and when, or why nothing was. Nothing is judged.

A sample is swapped in whole.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace

from hotstage.clock import Clock
from hotstage.config.engines import EnginesConfig
from hotstage.engines.exposition import begins_with
from hotstage.engines.fetch import Fetcher, FetchError
from hotstage.engines.meter import Meter
from hotstage.engines.reader import read_page
from hotstage.engines.samples import EngineSample
from hotstage.engines.table import Table
from hotstage.engines.target import TABLES, EngineTarget

log = logging.getLogger(__name__)

_PERIODS_FRESH = 3.0


class EngineScraper:
    """One engine. `look` from one thread; `sample` may be read from any."""

    def __init__(self, target: EngineTarget, config: EnginesConfig, clock: Clock) -> None:
        self.target = target
        self._clock = clock
        self.fetcher = Fetcher(target, config.timeout_seconds, config.max_bytes)
        self._meter = Meter(config.window_seconds, config.min_samples)
        self._table: Table | None = target.table
        self._failures: Counter[str] = Counter()
        self._is_failing = False
        stale_after = _PERIODS_FRESH * config.period_seconds + config.timeout_seconds
        self.sample = EngineSample(
            target.name,
            target.instance,
            None if target.table is None else target.table.runtime,
            None,
            round(stale_after * 1e9),
            "not looked at yet",
            0,
        )

    def look(self) -> None:
        """Ask once. What fails is in the sample, and told once in the log until it works again."""
        try:
            self.sample = self._ask(self._clock.monotonic_ns())
        except FetchError as error:
            self._failures[error.kind] += 1
            self.sample = replace(self.sample, reason=str(error), failures=dict(self._failures))
            if not self._is_failing:
                log.warning("engine %s: %s", self.target.name, error, extra={"url": self.target.shown_url})
            self._is_failing = True
        else:
            if self._is_failing:
                log.info("engine %s answers again", self.target.name, extra={"url": self.target.shown_url})
            self._is_failing = False

    def _ask(self, began_ns: int) -> EngineSample:
        body = self.fetcher.fetch()
        table = self.target.table or _told_by(body) or self._table
        if table is None:
            raise FetchError("page", "the page has no name of vLLM, SGLang or Triton")
        page = read_page(body, table)
        if not page.models:
            raise FetchError("page", f"the page has no number of {table.runtime.value} that can be used")
        if self._table is not None and table is not self._table:
            self._meter = self._meter.anew()
        self._table = table
        models, total = self._meter.take(began_ns, page)
        return replace(
            self.sample,
            runtime=table.runtime,
            at_ns=began_ns,
            reason="",
            epoch=self._meter.epoch,
            models=models,
            total=total,
            scrape_seconds=(self._clock.monotonic_ns() - began_ns) / 1e9,
            failures=dict(self._failures),
            problems=page.problems,
        )


def _told_by(body: bytes) -> Table | None:
    return next((table for table in TABLES if begins_with(body, table.marks)), None)
