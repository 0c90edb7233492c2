# SPDX-License-Identifier: Apache-2.0
"""How much CPU and memory a process may use: the tightest limit on its way up the cgroup tree, v2 and v1.

Reads below injected roots; a file that is missing sets no limit. It knows nothing of samples or loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_DEPTH_LIMIT = 32
_NO_LIMIT_BYTES = 1 << 60
"""v1 says "no limit" with a number near 2^63."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`cores` and `memory_bytes` of one process's cgroup; None where only the host itself limits it."""

    cores: float | None
    memory_bytes: int | None


def read_limits(pid: int, proc_root: Path, cgroup_root: Path) -> Limits:
    """The limits that hold for `pid` now; none at all when it is gone."""
    try:
        lines = (proc_root / str(pid) / "cgroup").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return Limits(None, None)
    cores: list[float] = []
    memory: list[int] = []
    for line in lines[:64]:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for folder in _folders(cgroup_root, controllers, path):
            cores.extend(_quota_v2(folder / "cpu.max"))
            memory.extend(_number(folder / "memory.max"))
            cores.extend(_quota_v1(folder))
            memory.extend(_number(folder / "memory.limit_in_bytes"))
    return Limits(min(cores, default=None), min((b for b in memory if b < _NO_LIMIT_BYTES), default=None))


def _folders(cgroup_root: Path, controllers: str, path: str) -> Iterator[Path]:
    """The cgroup's folder and those above it, below each place where its hierarchy may be mounted."""
    names = [part for part in PurePosixPath(path).parts if part not in ("/", "..", ".")][:_DEPTH_LIMIT]
    if controllers == "":
        mounts = [cgroup_root, cgroup_root / "unified"]
    elif {"cpu", "memory"} & set(controllers.split(",")):
        mounts = [cgroup_root / controllers]
    else:
        return
    for mount in mounts:
        for depth in range(len(names), -1, -1):
            yield mount.joinpath(*names[:depth])


def _quota_v2(file: Path) -> list[float]:
    fields = _fields(file)
    if len(fields) != 2 or not (fields[0].isdecimal() and fields[1].isdecimal()) or int(fields[1]) == 0:
        return []
    return [int(fields[0]) / int(fields[1])]


def _quota_v1(folder: Path) -> list[float]:
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return [quota[0] / period[0]] if quota and period and quota[0] > 0 and period[0] > 0 else []


def _number(file: Path) -> list[int]:
    fields = _fields(file)
    return [int(fields[0])] if len(fields) == 1 and fields[0].isdecimal() else []


def _fields(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except (OSError, UnicodeDecodeError):
        return []
