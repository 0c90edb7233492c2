# SPDX-License-Identifier: Apache-2.0
"""Which descriptors of which processes are of GPU devices: a walk of /proc/PID/fd, told to the kernel's map.

Only where ioctls are counted. A descriptor that is opened and closed between two walks is not seen; one whose
number was given to another file since the last walk is counted until the next one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from hotstage.probes.driver.ioctls import device_of

FDS_MAX = 4096
"""Descriptors looked at in one process."""

GpuFiles = dict[tuple[int, int], int]
"""(pid, descriptor) → the place of its pattern."""


def find_gpu_files(pids: Iterable[int], root: Path, patterns: tuple[tuple[str, str], ...]) -> GpuFiles:
    """Of these processes, as of now; those that are gone or closed to this user have none."""
    return {
        (pid, fd): device
        for pid in pids
        for fd, path in _links(root / str(pid) / "fd")
        if (device := device_of(path, patterns)) is not None
    }


def _links(folder: Path) -> Iterator[tuple[int, str]]:
    try:
        names = [entry.name for _, entry in zip(range(FDS_MAX), os.scandir(folder), strict=False)]
    except OSError:
        return
    for name in names:
        try:
            yield int(name), str((folder / name).readlink())
        except OSError:
            continue
