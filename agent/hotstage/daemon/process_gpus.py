# SPDX-License-Identifier: Apache-2.0
"""Which GPU a process uses, as the driver told that process: for processes that use exactly one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

DeviceUuids = Mapping[tuple[int, int], str]
"""(pid, ordinal) → UUID."""


class ProcessGpus:
    """Asked anew once a second, and at once when a process shows up that is not known yet: what is counted
    under no GPU meanwhile would be a series of its own, for ever. Not thread-safe.
    """

    def __init__(self, read: Callable[[], DeviceUuids]) -> None:
        self._read = read
        self.of_pid: Mapping[int, str] = {}
        """pid → UUID."""

    def refresh(self) -> DeviceUuids:
        """Ask; all that was told."""
        uuids = self._read()
        self.of_pid = only_gpus(uuids)
        return uuids

    def meet(self, pids: Collection[int]) -> None:
        """These processes are about to be counted."""
        if not self.of_pid.keys() >= set(pids):
            self.refresh()


def only_gpus(uuids: DeviceUuids) -> dict[int, str]:
    """pid → UUID, for processes that use exactly one GPU."""
    by_pid: dict[int, set[str]] = {}
    for (pid, _), uuid in uuids.items():
        by_pid.setdefault(pid, set()).add(uuid)
    return {pid: next(iter(own)) for pid, own in by_pid.items() if len(own) == 1}
