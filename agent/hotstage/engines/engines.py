# SPDX-License-Identifier: Apache-2.0
"""The threads that look at engines: one an engine, so that a slow one keeps nobody waiting.

The tick only reads what they found last.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hotstage.clock import Clock
from hotstage.config.engines import EnginesConfig
from hotstage.engines.samples import EngineSample
from hotstage.engines.target import EngineTarget, read_targets

if TYPE_CHECKING:
    from hotstage.engines.scraper import EngineScraper

log = logging.getLogger(__name__)

_CUT_SECONDS = 0.25
_CLOSE_SECONDS = 2.0


class Engines:
    """All configured engines. Raises ConfigError when one cannot be used."""

    def __init__(self, config: EnginesConfig, clock: Clock) -> None:
        self._period_seconds = config.period_seconds
        self.scrapers = _scrapers(read_targets(config.endpoints), config, clock)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def latest(self) -> tuple[EngineSample, ...]:
        """The last sample of each, without waiting."""
        return tuple(scraper.sample for scraper in self.scrapers)

    def start(self) -> None:
        if not self.scrapers:
            return
        self._threads = [
            threading.Thread(
                target=self._follow, args=(each,), name=f"hotstage-engine-{each.target.name}", daemon=True
            )
            for each in self.scrapers
        ]
        self._threads.append(threading.Thread(target=self._watch, name="hotstage-engines", daemon=True))
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the threads; one that is stuck in a resolver is left behind."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_CLOSE_SECONDS)

    def _follow(self, scraper: EngineScraper) -> None:
        # Engines that were configured together are not all asked in the same moment.
        pause = random.uniform(0, min(self._period_seconds, 1.0) / 4)  # noqa: S311 (not a secret)
        while not self._stop.wait(pause):
            try:
                scraper.look()
            except Exception:
                # Whatever an engine says must not end the thread that listens to it.
                log.exception("engine %s: its page could not be read", scraper.target.name)
            pause = self._period_seconds

    def _watch(self) -> None:
        while not self._stop.wait(_CUT_SECONDS):
            for scraper in self.scrapers:
                scraper.fetcher.cut_if_late()


def _scrapers(
    targets: Sequence[EngineTarget], config: EnginesConfig, clock: Clock
) -> tuple[EngineScraper, ...]:
    if not targets:
        return ()
    # Its HTTP client takes 5 MB, which an agent without engines need not have.
    from hotstage.engines.scraper import EngineScraper

    return tuple(EngineScraper(each, config, clock) for each in targets)
