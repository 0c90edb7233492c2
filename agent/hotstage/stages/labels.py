# SPDX-License-Identifier: Apache-2.0
"""One number for each stage of the host: an id from 32 to 63 means something in its own process only, a label
is the same for all processes that gave their stage one name.

Labels below 256 are the pinned ids and `NO_STAGE`. The input is not trusted: names are cleaned by the probes,
and so many are told apart and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.stages.stage import OWN_STAGES, Stage, stage_name

OwnNames = Mapping[tuple[int, int], str]
"""(pid, stage id) → the name that the process gave its own stage."""

_FIRST = 256
_ASK_AGAIN_NS = 1_000_000_000


def no_names() -> OwnNames:
    """Where nobody tells any."""
    return {}


def own_stage_name(names: OwnNames, pid: int, stage: int) -> str:
    """What a process calls a stage of its own; of another stage, or without a name, as `stage_name`."""
    own = names.get((pid, stage)) if stage in OWN_STAGES else None
    return own or stage_name(stage)


class StageLabels:
    """Append-only. An own stage without a name, or beyond `limit` names, is `other`."""

    def __init__(self, limit: int = 96) -> None:
        self._limit = limit
        self._names: list[str] = []
        self._labels: dict[str, int] = {stage.name: stage.value for stage in Stage}
        self._own: dict[tuple[int, int], int] = {}
        self.refused = 0
        """Names that are `other`, because so many others were there before."""

    def __getitem__(self, label: int) -> str:
        """The stage's name; `none` for NO_STAGE. A label never handed out raises IndexError."""
        return stage_name(label) if label < _FIRST else self._names[label - _FIRST]

    def __len__(self) -> int:
        """Labels are below."""
        return _FIRST + len(self._names)

    def know(self, names: OwnNames) -> None:
        """What processes call their own stages, as of now: whoever is not there has ended."""
        self._own = {key: self._intern(name) for key, name in names.items() if name}

    def knows(self, pid: int, stage: int) -> bool:
        """Whether the process has named this stage of its own."""
        return (pid, stage) in self._own

    def label_of(self, pid: int, stage: int) -> int:
        """Of a stage id in this process."""
        return self._own.get((pid, stage), Stage.other.value) if stage in OWN_STAGES else stage

    def _intern(self, name: str) -> int:
        known = self._labels.get(name)
        if known is None:
            if len(self._names) >= self._limit:
                self.refused += 1
                return Stage.other.value
            known = self._labels[name] = len(self)
            self._names.append(name)
        return known


class Labeller:
    """Puts labels on spans, and asks for names when it meets a stage that it does not know."""

    def __init__(self, labels: StageLabels, own_names: Callable[[], OwnNames]) -> None:
        self._labels = labels
        self._own_names = own_names
        self._asked_ns: int | None = None
        self._nameless: set[tuple[int, int]] = set()

    def label(self, spans: NDArray[Any], at_ns: int) -> None:
        """SPAN_DTYPE (N,), in place."""
        spans["label"] = spans["stage"]
        own, keys = self.meet(spans["pid"], spans["stage"], at_ns)
        spans["label"][own] = [self._labels.label_of(*key) for key in keys]

    def meet(
        self, pids: NDArray[np.uint32], stages: NDArray[np.uint8], at_ns: int
    ) -> tuple[NDArray[np.intp], list[tuple[int, int]]]:
        """(places of own stages among these, their (pid, stage)); names are asked for where there are any."""
        own = np.flatnonzero((stages >= OWN_STAGES.start) & (stages < OWN_STAGES.stop))
        keys = list(zip(pids[own].tolist(), stages[own].tolist(), strict=True)) if len(own) else []
        if keys:
            self._ask_for(set(keys), at_ns)
        return own, keys

    def _ask_for(self, keys: set[tuple[int, int]], at_ns: int) -> None:
        """A new stage is asked for at once, all of them once a second: a process may have come by its pid."""
        is_new = any(not self._labels.knows(*key) for key in keys - self._nameless)
        if not is_new and self._asked_ns is not None and at_ns - self._asked_ns < _ASK_AGAIN_NS:
            return
        self._asked_ns = at_ns
        self._labels.know(self._own_names())
        self._nameless = {key for key in keys if not self._labels.knows(*key)}
