# SPDX-License-Identifier: Apache-2.0
"""Service level objectives: each ended request is good or bad for those that its endpoint is under. Pure.

Good: it ended well within the objective's latency. Bad: slower, failed, refused, or lost with its process.
One that its caller cancelled is neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from hotstage.config.slo import SloObjective
from hotstage.errors import ConfigError

GOOD, BAD = "good", "bad"


class Slos:
    """Raises ConfigError when two objectives have one name."""

    def __init__(self, objectives: Sequence[SloObjective]) -> None:
        names = [each.name for each in objectives]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(
                f"slo.objectives: two are named {', '.join(twice)}", remedy="give each a name of its own"
            )
        self.objectives = tuple(objectives)
        self._of_endpoint: dict[str, tuple[SloObjective, ...]] = {}

    def __len__(self) -> int:
        return len(self.objectives)

    def judge(self, endpoint: str, outcome: str, seconds: float) -> Iterator[tuple[str, str]]:
        """(objective's name, good or bad) for each objective that counts this request."""
        if outcome == "cancelled":
            return
        for each in self._objectives_of(endpoint):
            is_good = outcome == "ok" and seconds <= each.latency_seconds
            yield each.name, GOOD if is_good else BAD

    def _objectives_of(self, endpoint: str) -> tuple[SloObjective, ...]:
        """Bounded as the names of endpoints are."""
        found = self._of_endpoint.get(endpoint)
        if found is None:
            found = tuple(each for each in self.objectives if fnmatchcase(endpoint, each.endpoint))
            self._of_endpoint[endpoint] = found
        return found
