# SPDX-License-Identifier: Apache-2.0
"""What a token takes of a GPU's memory while it is encoded or prefilled: learned from the ledger's growth.

bytes per token = Σ allocated by the stages of its kind ÷ Σ tokens that went through them, both fading with a
half-life of a minute. Where an allocator keeps what it has, it asks the driver only for growth: then the
price is what a token has cost beyond what was kept, and the rest counts as reusable.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.frame.token_demand import STAGES_OF
from hotstage.probes.memory_sample import MOST_BYTES

HALF_LIFE_SECONDS = 60.0
LEAST_TOKENS = 1000
"""Of a kind must have gone through before they have a price."""

Place = tuple[int, int]
"""(pid, device ordinal)."""

_KIND_OF_STAGE = {int(stage): kind for kind, stages in STAGES_OF.items() for stage in stages}
_KINDS = np.array([_KIND_OF_STAGE.get(stage, -1) for stage in range(256)])


@dataclass(slots=True)
class _Sum:
    bytes: float = 0.0
    tokens: float = 0.0


class TokenPrices:
    """`take` what went through, `settle` with what was allocated; then `of`. Not thread-safe."""

    def __init__(self) -> None:
        self._tokens: dict[tuple[int, int], int] = {}
        self._allocated: dict[tuple[Place, int], int] = {}
        self._sums: dict[tuple[Place, int], _Sum] = {}
        self._at_ns: int | None = None

    def take(self, pid: int, stage: int, tokens: int) -> None:
        """A stage of the process has ended that worked on so many tokens."""
        kind = _KIND_OF_STAGE.get(stage)
        if kind is not None:
            self.add(pid, kind, tokens)

    def add(self, pid: int, kind: int, tokens: int) -> None:
        """So many tokens of the kind went through."""
        self._tokens[pid, kind] = self._tokens.get((pid, kind), 0) + tokens

    def settle(self, at_ns: int, stages: NDArray[np.void]) -> None:
        """STAGE_ROW_DTYPE of the ledger: what was allocated since the last time belongs to what was taken
        since. Processes that are not in it any more are forgotten. A second whose sum fell, or grew by more
        than any GPU has (a number that a program made up; a sum modulo 2^64), says nothing of the price.
        """
        now = allocated_by_kind(stages)
        fade = 1.0 if self._at_ns is None else 0.5 ** ((at_ns - self._at_ns) / 1e9 / HALF_LIFE_SECONDS)
        kept: dict[tuple[Place, int], _Sum] = {}
        for key, total in now.items():
            place, kind = key
            found = kept[key] = self._sums.get(key, _Sum())
            grown = total - self._allocated.get(key, total + 1)
            if 0 <= grown <= MOST_BYTES:
                found.bytes = found.bytes * fade + grown
                found.tokens = found.tokens * fade + self._tokens.get((place[0], kind), 0)
        self._sums, self._allocated, self._tokens, self._at_ns = kept, now, {}, at_ns

    def of(self, place: Place, kind: int) -> int:
        """Bytes, rounded up; 0 while it is not known."""
        found = self._sums.get((place, kind))
        if found is None or found.tokens < LEAST_TOKENS:
            return 0
        return int(-(-found.bytes // found.tokens))

    def works_on(self, place: Place, kind: int) -> bool:
        """Whether tokens of the kind have memory on this device of the process."""
        return (place, kind) in self._sums


def allocated_by_kind(
    stages: NDArray[np.void], name: str = "allocated_bytes"
) -> dict[tuple[Place, int], int]:
    """((pid, device), kind) → the sum of a column over the stages of the kind."""
    found: dict[tuple[Place, int], int] = {}
    kinds = _KINDS.take(stages["stage"])
    rows = np.flatnonzero(kinds >= 0)
    columns = (stages[column][rows].tolist() for column in ("tgid", "device", name))
    for kind, pid, device, value in zip(kinds[rows].tolist(), *columns, strict=True):
        key = (pid, device), kind
        found[key] = found.get(key, 0) + value
    return found
