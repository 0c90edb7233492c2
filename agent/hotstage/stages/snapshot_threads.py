# SPDX-License-Identifier: Apache-2.0
"""The threads of a snapshot: the call or stage each is in, since when, and which request it works for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.stages.labels import OwnNames, own_stage_name
from hotstage.stages.places import NO_DEVICE
from hotstage.stages.snapshot_columns import ages_of, moments_of
from hotstage.stages.snapshot_types import ThreadState
from hotstage.stages.stage import NO_STAGE, modality_name

STAGE_THREADS_MAX = 4
"""Threads named for a request that none of them names, by stage."""


class BusyThreads:
    """Threads in a call or stage, longest first, each with the request that it works for.

    `rows`: THREAD_DTYPE (T,). `request_of`: index of the request of each, -1 for none.
    """

    def __init__(self, threads: NDArray[Any], requests: NDArray[Any]) -> None:
        busy = threads[(threads["call"] != 0) | (threads["stage"] != NO_STAGE)]
        since = np.where(busy["call"] != 0, busy["since_ns"], busy["stage_since_ns"])
        order = np.argsort(since, kind="stable")
        self.rows = busy[order]
        self.since_ns = since[order]
        self.request_of = _request_of(self.rows, requests)

    def states(
        self,
        at_ns: int,
        offset_ns: int,
        call_names: Mapping[int, str],
        request_keys: list[str],
        own_names: OwnNames,
    ) -> list[ThreadState]:
        """One for each row, in order; times on the wall clock by `offset_ns`."""
        since, since_ns = moments_of(self.since_ns, offset_ns)
        columns = (
            self.rows[name].tolist()
            for name in ("tgid", "tid", "stage", "modality", "call", "stream", "device")
        )
        return [
            ThreadState(
                pid,
                tid,
                None if stage == NO_STAGE else own_stage_name(own_names, pid, stage),
                None if stage == NO_STAGE else modality_name(modality),
                call_names.get(call, f"call_{call}") if call else None,
                at,
                at_wall_ns,
                age,
                stream or None,
                None if device == NO_DEVICE else device,
                None if request < 0 else request_keys[request],
            )
            for pid, tid, stage, modality, call, stream, device, at, at_wall_ns, age, request in zip(
                *columns,
                since,
                since_ns,
                ages_of(self.since_ns, at_ns),
                self.request_of.tolist(),
                strict=True,
            )
        ]

    def by_request(self) -> dict[int, list[int]]:
        """Index of a request → its threads' rows, longest first."""
        found: dict[int, list[int]] = {}
        for row in np.flatnonzero(self.request_of >= 0).tolist():
            found.setdefault(int(self.request_of[row]), []).append(row)
        return found

    def by_stage(self) -> dict[tuple[int, int], list[int]]:
        """(pid, stage) → rows of threads that are in it for no request that is known, longest first."""
        found: dict[tuple[int, int], list[int]] = {}
        free = np.flatnonzero((self.request_of < 0) & (self.rows["stage"] != NO_STAGE))
        columns = (self.rows[name][free].tolist() for name in ("tgid", "stage"))
        for row, pid, stage in zip(free.tolist(), *columns, strict=True):
            rows = found.setdefault((pid, stage), [])
            if len(rows) < STAGE_THREADS_MAX:
                rows.append(row)
        return found

    def pending(self, name: str, requests: int) -> NDArray[np.uint64]:
        """(requests,) what their threads have done since it was last credited to them: `launch`, `bytes` or
        `error`.
        """
        sums = np.zeros(requests, np.uint64)
        working = self.request_of >= 0
        if working.any():
            total = self.rows[f"{name}_total"][working].astype(np.uint64)
            told = self.rows[f"flushed_{name}_total"][working].astype(np.uint64)
            # Told is above total for an instant while the kernel credits it.
            np.add.at(sums, self.request_of[working], np.where(total > told, total - told, 0))
        return sums


def _request_of(threads: NDArray[Any], requests: NDArray[Any]) -> NDArray[np.intp]:
    """(T,) index into `requests`, or -1. A thread knows the hash of an id, not the cgroup: where two cgroups
    have one id, the request of the thread's own process is taken, and none where that does not decide.
    """
    found = np.full(len(threads), -1, np.intp)
    working = np.flatnonzero((threads["request_hash"] != 0) & (threads["stage"] != NO_STAGE))
    if not len(working) or not len(requests):
        return found
    by_hash: dict[int, list[int]] = {}
    for index, request_hash in enumerate(requests["request_hash"].tolist()):
        by_hash.setdefault(request_hash, []).append(index)
    pids = requests["tgid"].tolist()
    hashes, tgids = (threads[name][working].tolist() for name in ("request_hash", "tgid"))
    for row, request_hash, tgid in zip(working.tolist(), hashes, tgids, strict=True):
        candidates = by_hash.get(request_hash, [])
        own = candidates if len(candidates) < 2 else [each for each in candidates if pids[each] == tgid]
        if len(own) == 1:
            found[row] = own[0]
    return found
