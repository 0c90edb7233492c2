# SPDX-License-Identifier: Apache-2.0
"""Names for people: which kernels each process launches, from where its slow and failing calls were made."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from hotstage.clock import Clock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.discovery.processes import ProcessTable
from hotstage.probes.host_functions import HostFunctions
from hotstage.probes.kernel_series import KernelSeries
from hotstage.probes.kernel_table import Kernels, kernel_table, no_kernels
from hotstage.probes.maps.inference import InferenceMaps
from hotstage.probes.maps.names import NamesMaps
from hotstage.probes.stacks import NameStage, Stacks, StackWatch


class Names:
    """`start` once the programs are loaded. Any thread may ask."""

    def __init__(
        self,
        config: ProbesConfig,
        clock: Clock,
        launches: Callable[[], tuple[Mapping[int, int], int]],
    ) -> None:
        """`launches`: pid → launches since the attach, and those of all processes ever."""
        self._config = config
        self._launches = launches
        self._now_ns = clock.monotonic_ns
        self._own_pid = os.getpid()
        self._series = KernelSeries(config.kernel_series)
        self._series_lock = threading.Lock()
        self._processes = ProcessTable(Path(config.proc_root))
        self._maps: NamesMaps | None = None
        self._stacks = StackWatch(
            Path(config.proc_root), config.discovery_deadline_seconds, clock.monotonic_ns
        )
        self._host_functions = HostFunctions(
            Path(config.proc_root), config.discovery_deadline_seconds, clock.monotonic_ns
        )

    def start(self, maps: NamesMaps, functions: InferenceMaps) -> None:
        """Before anything is attached."""
        maps.prepare(launch_gap=self._config.kernel_gap, takes_stacks=self._config.stacks)
        self._maps = maps
        if self._config.stacks:
            self._stacks.start(maps)
        if self._config.kernel_gap:
            self._host_functions.start(maps, functions)

    def kernels(self, limit: int) -> Kernels:
        """Launches by kernel as of now, the top `limit` of each process."""
        maps = self._maps
        if maps is None or not maps.launch_gap:
            return no_kernels(limit)
        keys, states = maps.kernels()
        launches = {pid: count for pid, count in self._launches()[0].items() if pid != self._own_pid}
        names = {pid: self._processes.name(pid) for pid in launches}
        return kernel_table(keys, states, launches, names, launch_gap=maps.launch_gap, limit=limit)

    def kernel_series(self) -> list[tuple[str, int]]:
        """(kernel, launches ever) of the whole host: those launched most of late, and the rest."""
        maps = self._maps
        if maps is None or not maps.launch_gap or not self._config.kernel_series:
            return []
        with self._series_lock:
            # Samples first: what is launched in between is a sample of the next look
            keys, states = maps.kernels()
            launches, total = self._launches()
            return self._series.step(self._now_ns(), total, launches, keys, states)

    def stacks(self, named: NameStage) -> Stacks:
        """Stacks of slow and failing calls, the newest first; `named` knows what stages are called."""
        return Stacks(self._config.stacks, self._stacks.book.all(named))

    def close(self) -> None:
        self._stacks.close()
        self._host_functions.close()
        self._maps = None
