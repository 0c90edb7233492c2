# SPDX-License-Identifier: Apache-2.0
"""One XID is told once, though the driver's tracepoint, the kernel log and NVML all tell of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from hotstage.probes.samples import XidEvent

SAME_NS = 2_000_000_000
"""Within this time the same XID of the same GPU from another source is the same one."""

KEPT_MAX = 256
"""GPUs × XIDs remembered; a host has some."""


class XidMerge:
    """Keeps, by GPU and XID, how often each source told of it lately. What one source tells twice are two."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], dict[str, list[int]]] = {}

    def merge(self, events: Iterable[XidEvent]) -> tuple[XidEvent, ...]:
        """Those that are new, in order of time; of each the source that was heard first."""
        return tuple(event for event in sorted(events, key=lambda each: each.at_ns) if self._is_new(event))

    def _is_new(self, event: XidEvent) -> bool:
        """An event is new where its source has now told more of them than any other one."""
        sources = self._told.setdefault((event.pci_bus_id, event.xid), {})
        for name, times in list(sources.items()):
            sources[name] = [at_ns for at_ns in times if event.at_ns - at_ns < SAME_NS]
        own = sources.setdefault(event.source, [])
        own.append(event.at_ns)
        others = max((len(times) for name, times in sources.items() if name != event.source), default=0)
        if len(self._told) > KEPT_MAX:
            self._forget(event.at_ns)
        return len(own) > others

    def _forget(self, now_ns: int) -> None:
        """What is too old to be told again; all of it where that is not enough."""
        kept = {
            key: sources
            for key, sources in self._told.items()
            if any(now_ns - at_ns < SAME_NS for times in sources.values() for at_ns in times)
        }
        self._told = kept if len(kept) <= KEPT_MAX else {}
