# SPDX-License-Identifier: Apache-2.0
"""One process's cgroup with limits of CPU and memory, v2 and v1: where it can stand, what is written into it.

It stands below the group of this process, or the nearest one above that can hold it. Roots are injected. It
knows no numbers; changes nothing but groups that it made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_PERIOD_US = 1_000_000
"""The longest there is: a server that works in bursts is within its quota over 1 s, not over 0.1 s."""


@dataclass(frozen=True, slots=True)
class Group:
    """A folder in each hierarchy; in v2 both are the same one."""

    is_v2: bool
    cpu: Path
    memory: Path

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self.cpu,) if self.is_v2 else (self.cpu, self.memory)

    def make(self) -> None:
        """Raises OSError."""
        for folder in self.folders:
            folder.mkdir(exist_ok=True)

    def limit(self, cores: float | None, memory_bytes: int | None) -> None:
        """None: no limit. Raises OSError."""
        cpu_us = None if cores is None else round(cores * _PERIOD_US)
        if self.is_v2:
            (self.cpu / "cpu.max").write_text(f"{cpu_us or 'max'} {_PERIOD_US}")
            (self.memory / "memory.max").write_text(str(memory_bytes or "max"))
        else:
            (self.cpu / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (self.cpu / "cpu.cfs_quota_us").write_text(str(cpu_us or -1))
            (self.memory / "memory.limit_in_bytes").write_text(str(memory_bytes or -1))

    def take(self, pid: int) -> None:
        """Move a process with all its threads in. Raises OSError."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def times_throttled(self) -> int:
        """Periods in which the CPU limit has stopped it; 0 when it is gone."""
        try:
            found = re.search(r"^nr_throttled (\d+)$", (self.cpu / "cpu.stat").read_text(), re.MULTILINE)
        except OSError:
            return 0
        return int(found.group(1)) if found else 0

    def remove(self) -> bool:
        """Whether it is gone; it is in use for a moment after its last process has ended."""
        for folder in self.folders:
            with suppress(OSError):
                folder.rmdir()
        return not any(folder.exists() for folder in self.folders)


def find_place(cgroup_root: Path, proc_root: Path) -> Group:
    """The group to make others below. Raises OSError where none can hold limits of CPU and memory."""
    paths: dict[str, str] = {}
    for line in (proc_root / "self" / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths[controllers] = path
    for mount in (cgroup_root, cgroup_root / "unified"):
        for folder in _upwards(mount, paths.get("", "/")):
            if {"cpu", "memory"} <= _controllers_below(folder):
                return Group(True, folder, folder)
    found = {}
    for controllers, path in paths.items():
        for wanted in {"cpu", "memory"} & set(controllers.split(",")):
            found[wanted] = next(_upwards(cgroup_root / controllers, path), None)
    cpu, memory = found.get("cpu"), found.get("memory")
    if cpu is None or memory is None:
        raise FileNotFoundError("no cgroups with the controllers cpu and memory")
    return Group(False, cpu, memory)


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """The folder of `path` and those above it, as far as they exist: in a container it may be the host's."""
    names = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
    for depth in range(len(names), -1, -1):
        if (folder := mount.joinpath(*names[:depth])).is_dir():
            yield folder


def _controllers_below(folder: Path) -> set[str]:
    try:
        return set((folder / "cgroup.subtree_control").read_text().split())
    except OSError:
        return set()
