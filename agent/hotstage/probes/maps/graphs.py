# SPDX-License-Identifier: Apache-2.0
"""Launches that were captured, and the kernels that graph launches ran, as the kernel counts them.

A captured launch became a node of a graph and did not run. `bpf/include/graphs.h` says what a capture is.
Works on descriptors; it never looks at /proc.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.maps import layout
from hotstage.probes.maps.reader import HashReader

CAPTURE_KEY_DTYPE = np.dtype([("stream", "<u8"), ("tgid", "<u4"), ("tid", "<u4")])
CAPTURE_DTYPE = np.dtype(
    [
        ("origin", CAPTURE_KEY_DTYPE),
        ("began_ns", "<u8"),
        ("kernels", "<u8"),
        ("tid", "<u4"),
        ("is_joined", "u1"),
        ("is_unknown", "u1"),
        ("pad", "u1", (2,)),
    ]
)
GRAPH_WORK_DTYPE = np.dtype([("captured", "<u8"), ("kernels", "<u8"), ("unknown", "<u8")])

_TGID_DTYPE = np.dtype([("tgid", "<u4")])
_COUNT_DTYPE = np.dtype([("count", "<u8")])


class GraphMaps:
    """`graph_work`, and beside it what its programs know of captures and graphs. One thread reads it."""

    def __init__(self, fds: Mapping[str, int]) -> None:
        self._work = HashReader(fds["graph_work"], layout.CALL_KEY_DTYPE, GRAPH_WORK_DTYPE)
        self._graphs = HashReader(fds["graphs"], layout.FUNCTION_KEY_DTYPE, _COUNT_DTYPE)
        self._captures = HashReader(fds["captures"], CAPTURE_KEY_DTYPE, CAPTURE_DTYPE)
        self._capturing = HashReader(fds["capturing"], _TGID_DTYPE, _COUNT_DTYPE)

    @property
    def capacity(self) -> int:
        """Entries that the map of graphs was loaded with."""
        return self._graphs.capacity

    def work(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """CALL_KEY_DTYPE and GRAPH_WORK_DTYPE (N,), copies; cumulative, of launches in captures and of graph
        launches only.
        """
        keys, work = self._work.read()
        return keys.copy(), work.copy()

    def forget(self, pids: Collection[int]) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Take out what belongs to processes that are gone; the last rows, as `work` has them."""
        gone = np.fromiter(pids, np.uint32, len(pids))
        keys, work = self.work()
        is_theirs = np.isin(keys["tgid"], gone)
        last = keys[is_theirs], work[is_theirs]
        for reader in (self._work, self._graphs, self._captures, self._capturing):
            keys = reader.read()[0].copy()
            reader.delete(keys[np.isin(keys["tgid"], gone)])
        return last


def no_work() -> tuple[NDArray[np.void], NDArray[np.void]]:
    """No row of either."""
    return np.zeros(0, layout.CALL_KEY_DTYPE), np.zeros(0, GRAPH_WORK_DTYPE)
