# SPDX-License-Identifier: Apache-2.0
"""A batch: work that several requests share on one thread.

The thread is in the stage that has most of the tokens, so its CUDA calls count for that stage; each request
has its own span with its own tokens. The calls of a batch are nobody's: a request is not charged with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Optional

import hotstage_marks as marks

MAX_MEMBERS = 4096
"""Members that are told of; the thread's stage is of the whole batch."""


class Batch:
    """One batch, from begin to end; made by `batch`. Without a watcher it does nothing at all."""

    __slots__ = ("_members", "_spans", "_stage", "modality")

    def __init__(self, members: Iterable[Any], modality: Any = "mixed") -> None:
        self._members = members
        self.modality = modality
        self._stage: Optional[marks.Scope] = None  # noqa: UP045 - read by Python 3.9
        self._spans: list[marks.Scope] = []

    def __enter__(self) -> Batch:
        return self.begin()

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self) -> Batch:
        if self._stage is None and marks.is_watched():
            try:
                self._begin()
            except Exception:  # no list of (request, stage, tokens): there is nothing to tell
                self.end()
        return self

    def end(self) -> None:
        """End once; later ends do nothing."""
        stage, self._stage = self._stage, None
        spans, self._spans = self._spans, []
        if stage is not None:
            stage.end()
        for span in spans:
            span.end()

    def _begin(self) -> None:
        totals: Counter[Any] = Counter()
        for rid, name, tokens, *modality in self._members:
            totals[name] += max(1, int(tokens))
            if len(self._spans) < MAX_MEMBERS:
                kind = modality[0] if modality else self.modality
                self._spans.append(marks.span(name, modality=kind, tokens=tokens, request=rid).begin())
        if totals:
            name, _ = totals.most_common(1)[0]
            count = sum(totals.values())
            self._stage = marks.stage(name, modality=self.modality, tokens=count, request="").begin()


def batch(members: Iterable[Any] = (), *, modality: Any = "mixed") -> Batch:
    """`with batch([(rid, stage, tokens), …]):`; a fourth value is the member's modality."""
    return Batch(members, modality)
