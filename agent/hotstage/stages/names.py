# SPDX-License-Identifier: Apache-2.0
"""Interned strings: rows carry small numbers, people read words.

The input is not trusted: a name is cut to printable ASCII, and the table is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hotstage.text import clean_name

UNNAMED = 0
"""Id of the empty name: nobody said one."""

OTHER = 1
"""Id that every new name gets once the table is full."""


class Names:
    """Text ↔ id, append-only; one per kind of name, so that one noisy kind cannot starve another."""

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._texts: list[str] = ["", "other"]
        self._ids: dict[str, int] = {"": UNNAMED, "other": OTHER}
        self.refused = 0  # look-ups that got `other` because the table was full

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, name_id: int) -> str:
        """The text of an id; an id never handed out raises IndexError."""
        return self._texts[name_id]

    def find(self, text: str) -> int:
        """The id of a text that was interned; -1 when it was not, which no row carries."""
        return self._ids.get(text, -1)

    def intern(self, text: str) -> int:
        """The id of `text`; `OTHER` when the table is full."""
        known = self._ids.get(text)
        if known is not None:
            return known
        if len(self._texts) >= self._limit:
            self.refused += 1
            return OTHER
        self._ids[text] = len(self._texts)
        self._texts.append(text)
        return len(self._texts) - 1

    def intern_rows(self, raw: NDArray[np.bytes_]) -> NDArray[np.uint32]:
        """Ids of (N,) NUL-padded byte strings → (N,) uint32; each distinct string is looked up once."""
        if len(raw) == 0:
            return np.zeros(0, np.uint32)
        texts = raw.tolist()
        ids = {text: self.intern(clean_name(text)) for text in dict.fromkeys(texts)}
        return np.array([ids[text] for text in texts], np.uint32)

    def texts(self, ids: Iterable[int]) -> Sequence[str]:
        return [self._texts[name_id] for name_id in ids]
