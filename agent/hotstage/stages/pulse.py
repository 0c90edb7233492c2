# SPDX-License-Identifier: Apache-2.0
"""What happened between two fast ticks, as the detectors read it. Values only.

A pulse never refers to a live object: arrays are its own and read-only, names are append-only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hotstage.stages.labels import StageLabels
from hotstage.stages.names import Names
from hotstage.stages.spans import PROCESS_DTYPE, REQUEST_DTYPE, SPAN_DTYPE

if TYPE_CHECKING:
    from hotstage.probes.samples import ConflictVerdict, XidEvent
    from hotstage.stages.stream_looks import StreamLook

Rows = NDArray[Any]
"""A structured numpy array; its dtype is named beside each field."""


@dataclass(frozen=True, slots=True)
class NameTable:
    """The interned names that rows refer to."""

    endpoints: Names = field(default_factory=Names)
    instances: Names = field(default_factory=Names)
    models: Names = field(default_factory=Names)
    stages: StageLabels = field(default_factory=StageLabels)


@dataclass(frozen=True, slots=True)
class Pulse:
    """One fast tick, 100 ms as a rule."""

    at_ns: int
    """CLOCK_MONOTONIC at the start of the read."""
    interval_ns: int
    """Since the pulse before; 0 for the first."""
    ended: Rows
    """SPAN_DTYPE: stages that ended since the last pulse, each exactly once."""
    open: Rows
    """SPAN_DTYPE: stages open now."""
    requests_open: Rows
    """REQUEST_DTYPE: in flight now."""
    requests_ended: Rows
    """REQUEST_DTYPE: ended since the last pulse, each once."""
    requests_started: int
    """How many began since the last pulse."""
    processes: Rows
    """PROCESS_DTYPE: one row per process that launches or holds requests."""
    xids: tuple[XidEvent, ...]
    losses: Mapping[str, int]
    """Cumulative, by the kernel's loss names."""
    lost: Mapping[str, int]
    """The part of `losses` that is new in this pulse; only what grew."""
    stale: frozenset[str]
    """Why this pulse may not be trusted to show absence: names of losses, `gap` after a missed tick."""
    unclean: int
    """Entries that came or went during the read."""
    names: NameTable
    shares: Rows | None = None
    """SHARE_DTYPE: members of the batches that ended since the last pulse; None where there are none."""
    conflicts: tuple[ConflictVerdict, ...] = ()
    """The kernel's verdicts on allocations since the last pulse."""
    stream_looks: tuple[StreamLook, ...] = ()
    """Processes in which encoders and the language model are at work now, and whether on one stream."""


def empty_rows(dtype: np.dtype[Any]) -> Rows:
    """(0,) rows of `dtype`."""
    return np.zeros(0, dtype)


def quiet_pulse(at_ns: int, *, names: NameTable | None = None, interval_ns: int = 100_000_000) -> Pulse:
    """A pulse in which nothing happened: what a host without requests gives."""
    return Pulse(
        at_ns=at_ns,
        interval_ns=interval_ns,
        ended=empty_rows(SPAN_DTYPE),
        open=empty_rows(SPAN_DTYPE),
        requests_open=empty_rows(REQUEST_DTYPE),
        requests_ended=empty_rows(REQUEST_DTYPE),
        requests_started=0,
        processes=empty_rows(PROCESS_DTYPE),
        xids=(),
        losses={},
        lost={},
        stale=frozenset(),
        unclean=0,
        names=names or NameTable(),
    )
