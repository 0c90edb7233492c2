# SPDX-License-Identifier: Apache-2.0
"""Which GPU a process uses, as the driver told that process: for processes that use exactly one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from hotstage.frame.entity import Entity
from hotstage.stages.pulse import Pulse

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


def gpu_of(entity: Entity, *, pulse: Pulse, of_pid: Mapping[int, str]) -> str | None:
    """UUID of the GPU of a process, or of all processes of an instance; None where they have not one."""
    if entity.pid is not None:
        return of_pid.get(entity.pid)
    if entity.instance is None:
        return None
    number = pulse.names.instances.find(entity.instance)
    pids = pulse.processes["pid"][pulse.processes["instance"] == number].tolist()
    uuids = {of_pid[pid] for pid in pids if pid in of_pid}
    return uuids.pop() if len(uuids) == 1 else None
