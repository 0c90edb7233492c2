# SPDX-License-Identifier: Apache-2.0
"""The kernel's verdicts on large allocations as values, what it judges by, and who works on which stream.
Nothing is judged here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from hotstage.config.conflict import ConflictConfig
from hotstage.probes.catalogue import calls_by_id
from hotstage.probes.maps.conflict import (
    LIMITS_DTYPE,
    TERM_FRAGMENTED,
    ConflictMaps,
    Outcome,
    StreamUser,
    TokenBasis,
)
from hotstage.probes.maps.kernel import KernelMaps
from hotstage.probes.memory_sample import Basis
from hotstage.probes.samples import ConflictVerdict

log = logging.getLogger(__name__)


class Conflicts:
    """Made unstarted, and then everything is empty. One thread, the tick's, hands in and drains."""

    def __init__(self) -> None:
        self._maps: ConflictMaps | None = None
        self._limits = np.zeros(1, LIMITS_DTYPE)
        self._call_names = {number: call.name for number, call in calls_by_id().items()}
        self._refused = 0

    def limit(self, config: ConflictConfig) -> None:
        """Judge by these from now on, or from the start on."""
        row = self._limits
        row["allocation_bytes"] = config.allocation_bytes if config.enabled else 0
        row["tokens"] = config.visual_tokens, config.text_tokens
        row["stale_ns"] = round(config.stale_seconds * 1e9)
        row["gap_ns"] = round(config.gap_seconds * 1e9)
        row["fragmentation_permille"] = round(config.fragmentation_ratio * 1000)
        if self._maps is not None:
            self._maps.set_limits(row)

    def start(self, maps: KernelMaps) -> None:
        """The programs are loaded."""
        self._maps = maps.conflict
        self._maps.set_limits(self._limits)

    def set_inputs(self, rows: Mapping[tuple[int, int], np.void]) -> None:
        """(pid, ordinal) → INPUTS_DTYPE (); who is not among them is not judged."""
        refused = self._maps.set_inputs(rows) if self._maps is not None else 0
        if refused > self._refused:
            log.warning("%d processes are not judged: conflict_inputs is full", refused)
        self._refused = refused

    def urgent_fds(self) -> tuple[int, ...]:
        """The ring of the verdicts, to be polled."""
        return () if self._maps is None else (self._maps.urgent_fd,)

    def drain(self) -> tuple[ConflictVerdict, ...]:
        """Verdicts since the last call, oldest first."""
        if self._maps is None:
            return ()
        return tuple(self._verdict(row) for row in self._maps.drain())

    def outcomes(self) -> Mapping[str, int]:
        """Allocations above the limit by what became of them, in lower case, since the start."""
        found = {} if self._maps is None else self._maps.counts()
        return {outcome.name.lower(): found.get(outcome, 0) for outcome in Outcome}

    def streams(self) -> list[StreamUser]:
        """Launches by stream and modality."""
        return [] if self._maps is None else self._maps.streams()

    def _verdict(self, row: np.void) -> ConflictVerdict:
        inputs = row["inputs"]
        is_cut = bool(row["terms"] & TERM_FRAGMENTED)
        return ConflictVerdict(
            at_ns=int(row["at_ns"]),
            pid=int(row["tgid"]),
            tid=int(row["tid"]),
            device=int(row["device"]),
            call=self._call_names.get(int(row["call"]), "unknown"),
            stage=int(row["stage"]),
            modality=int(row["modality"]),
            request_hash=int(row["request_hash"]) or None,
            bytes=int(row["bytes"]),
            visual_tokens=int(inputs["tokens"][0]),
            text_tokens=int(inputs["tokens"][1]),
            tokens_basis=TokenBasis(int(inputs["tokens_basis"])).name.lower(),
            fragmentation_ratio=int(inputs["fragmentation_permille"]) / 1000 if is_cut else None,
            fragmentation_basis=Basis(int(inputs["fragmentation_basis"])).name.lower(),
            predicted_bytes=int(row["predicted_bytes"]),
            headroom_bytes=int(inputs["headroom_bytes"]),
            headroom_age_ns=max(0, int(row["at_ns"]) - int(inputs["headroom_ns"])),
            held_back=int(row["held_back"]),
        )
