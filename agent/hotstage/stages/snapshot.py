# SPDX-License-Identifier: Apache-2.0
"""The state of every request and thread at one moment, frozen and JSON-ready; no reference to a live object.

Wall-clock times come from the clock that is handed in; strings come from hostile processes and are cleaned.
Columns are made with numpy and rows once at the end: two thousand requests take milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.clock import Clock, rfc3339
from hotstage.probes.samples import FastSample
from hotstage.stages.places import PlaceFinder, Places
from hotstage.stages.snapshot_requests import keys_of, request_states
from hotstage.stages.snapshot_threads import BusyThreads
from hotstage.stages.snapshot_types import Snapshot

Document = dict[str, Any]
Row = Any
"""One row of a structured array."""

REQUESTS_MAX = 8192
THREADS_MAX = 4096
FALSIFYING = ("lost_requests", "lost_requests_quota", "lost_threads", "missed_request", "reused_request")
"""Losses because of which a request or thread may be absent here, or look as if it stood still."""

_NOWHERE = Places()


def snapshot(
    sample: FastSample, clock: Clock, call_names: Mapping[int, str], places: Places = _NOWHERE
) -> Snapshot:
    """What a sample holds, cut at 8,192 requests and 4,096 threads; the totals count all.

    `call_names`: call id → name; an id that is not there shows as `call_<id>`.
    """
    offset_ns = clock.wall_ns_of(0)
    requests, total = _oldest_first(sample.requests)
    keys = keys_of(requests)
    busy = BusyThreads(sample.threads, requests)
    threads = busy.states(sample.at_ns, offset_ns, call_names, keys, places.stage_names)
    finder = PlaceFinder(places, sample.threads)
    taken_ns = sample.at_ns + offset_ns
    return Snapshot(
        taken_at=rfc3339(taken_ns),
        taken_at_ns=taken_ns,
        wall_offset_ns=offset_ns,
        requests=request_states(requests, keys, busy, threads, finder, sample.at_ns, offset_ns),
        requests_total=total,
        threads=threads[:THREADS_MAX],
        threads_total=len(threads),
        unclean=sample.unclean,
        losses={name: sample.losses[name] for name in FALSIFYING if sample.losses.get(name)},
    )


def _oldest_first(requests: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """(the requests to show, how many there are); rows move as plain bytes, a tenth of the cost by field."""
    order = np.argsort(requests["started_ns"], kind="stable")
    order = order[requests["started_ns"][order] != 0]  # 0: the kernel is still filling it in
    raw = requests.view(np.dtype((np.void, requests.dtype.itemsize)))
    return raw.take(order[:REQUESTS_MAX]).view(requests.dtype), len(order)
