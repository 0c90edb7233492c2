# SPDX-License-Identifier: Apache-2.0
"""Samples of the kernel's state → pulses: what ended, what is open, who lives. Never judges, never sees NVML.

The one place that knows both sides: kernel rows come in (`probes/maps/layout.py`), rows of `spans.py` go out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.samples import FastSample
from hotstage.stages import stream_looks
from hotstage.stages.labels import Labeller, OwnNames, no_names
from hotstage.stages.ledger import Ledger
from hotstage.stages.processes import IsAlive, Processes
from hotstage.stages.pulse import NameTable, Pulse, Rows

BLINDING_LOSSES = frozenset({"lost_events_ring", "lost_threads", "lost_requests"})
"""Losses after which something may look absent or standing still that is not."""

PROBES_OFF = "probes_off"
"""Why a pulse is stale while nothing is attached."""

GAP_NS = 1_000_000_000
"""Two looks further apart than this are a gap: nobody knows what happened in between."""

_DEAD_PIDS_KEPT = 1024
_NOTHING_LOST: frozenset[str] = frozenset()


class Tracker:
    """Feed it every fast sample in order; each ended stage comes out exactly once. Not thread-safe."""

    def __init__(
        self, *, is_alive: IsAlive | None = None, own_names: Callable[[], OwnNames] = no_names
    ) -> None:
        """`own_names`: what processes call the stages that they made up, as of now."""
        self.names = NameTable()
        self._labeller = Labeller(self.names.stages, own_names)
        self._ledger = Ledger(self.names)
        self._processes = Processes(is_alive)
        self._losses: dict[str, int] = {}
        self._at_ns: int | None = None
        self._died: dict[int, int] = {}  # pid → when it was found dead

    def advance(self, sample: FastSample) -> Pulse:
        """The pulse since the sample before; the first one starts the counting and holds no rates."""
        requests = self._without_the_dead(sample.requests)
        step = self._ledger.advance(sample.at_ns, requests, sample.finished)
        processes, dead = self._processes.advance(
            self._without_dead_threads(sample.threads), step.requests_open, step.output_tokens
        )
        self._labeller.meet(sample.threads["tgid"], sample.threads["stage"], sample.at_ns)
        for spans in (step.ended, step.open):
            if len(spans):
                self._labeller.label(spans, sample.at_ns)
        open_spans, requests_open, requests_ended = step.open, step.requests_open, step.requests_ended
        if len(dead):
            lost = self._bury(dead, sample.at_ns)
            requests_ended = np.concatenate([requests_ended, lost])
            open_spans = open_spans[~np.isin(open_spans["pid"], dead)]
            requests_open = requests_open[~np.isin(requests_open["pid"], dead)]
        interval_ns = 0 if self._at_ns is None else sample.at_ns - self._at_ns
        lost_now = self._new_losses(sample.losses)
        stale = BLINDING_LOSSES & lost_now.keys() if lost_now else _NOTHING_LOST
        if sample.is_blind:
            stale |= {PROBES_OFF}
        self._at_ns = sample.at_ns
        return Pulse(
            at_ns=sample.at_ns,
            interval_ns=interval_ns,
            ended=_frozen(step.ended),
            open=_frozen(open_spans),
            requests_open=_frozen(requests_open),
            requests_ended=_frozen(requests_ended),
            requests_started=step.started,
            processes=_frozen(processes),
            xids=sample.xids,
            losses=dict(sample.losses),
            lost=lost_now,
            stale=stale | {"gap"} if interval_ns > GAP_NS else stale,
            unclean=sample.unclean,
            names=self.names,
            shares=sample.shares if sample.shares is not None and len(sample.shares) else None,
            conflicts=sample.conflicts,
            stream_looks=stream_looks.looks(sample.threads),
        )

    def _bury(self, dead: NDArray[np.uint32], at_ns: int) -> Rows:
        for pid in dead.tolist():
            self._died.pop(pid, None)
            self._died[pid] = at_ns
        while len(self._died) > _DEAD_PIDS_KEPT:
            del self._died[next(iter(self._died))]
        return self._ledger.drop_processes(dead, at_ns)

    def _without_the_dead(self, requests: Rows) -> Rows:
        """A dead process's requests stay in the kernel for a while; a new process may have its pid."""
        dead = self._died.keys() & set(requests["tgid"].tolist()) if self._died else set()
        if not dead:
            return requests
        keep = np.ones(len(requests), np.bool_)
        for pid in dead:
            keep &= (requests["tgid"] != pid) | (requests["started_ns"] > self._died[pid])
        return requests[keep]

    def _without_dead_threads(self, threads: Rows) -> Rows:
        """Threads of a buried process, until it lives again under the same pid or user space removes them."""
        dead = self._died.keys() & set(threads["tgid"].tolist()) if self._died else set()
        still_dead = [pid for pid in dead if not self._processes.is_alive(pid)]
        return threads[~np.isin(threads["tgid"], still_dead)] if still_dead else threads

    def _new_losses(self, losses: Mapping[str, int]) -> dict[str, int]:
        """By how much each loss grew; the first sample is the baseline."""
        before, self._losses = self._losses, dict(losses)
        if self._at_ns is None or before == self._losses:
            return {}
        return {
            name: total - before.get(name, 0) for name, total in losses.items() if total > before.get(name, 0)
        }


def _frozen(rows: Rows) -> Rows:
    rows.flags.writeable = False
    return rows
