# SPDX-License-Identifier: Apache-2.0
"""Launches by kernel, from samples: the top ones of each process by their short names, and a rest.

Exact totals are split in proportion to what was sampled, so the rows of a process add up to its launches. One
standard error of a row that has the share p of n samples is √((1 - p) ÷ (p n)) of it (binomial).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from hotstage.probes.kernel_names import short_name
from hotstage.probes.maps.names import GRAPHS, NO_KERNEL, NameSource
from hotstage.text import clean_name

GRAPH_NAME = "(graphs)"
UNNAMED = ""
_SOURCES: dict[NameSource, Literal["lookup", "registration", "symbol"]] = {
    NameSource.LOOKED_UP: "lookup",
    NameSource.REGISTERED: "registration",
    NameSource.OF_SYMBOL: "symbol",
}


class KernelLaunches(Struct, frozen=True, gc=False):
    """Kernels that read the same, of one process."""

    kernel: Annotated[str, Meta(description="shortened; (graphs) are graph launches, not the kernels inside")]
    launches: Annotated[
        int, Meta(description="estimated from samples; counted where every launch is looked at")
    ]
    samples: int
    error_ratio: Annotated[
        float | None, Meta(description="one standard error of `launches`, of it; 0 where counted")
    ]
    variants: Annotated[int, Meta(description="different full names that read the same")]
    full_name: Annotated[
        str | None,
        Meta(description="of the most launched variant, as its process says it; at most 239 bytes"),
    ]
    name_source: Annotated[
        Literal["lookup", "registration", "symbol"] | None,
        Meta(
            description="of the most launched variant: it was looked up by it, it was registered with the "
            "runtime, it is its host function's symbol; null for graphs"
        ),
    ] = None


class ProcessKernels(Struct, frozen=True, gc=False):
    """One process: its rows and its rest add up to its launches."""

    pid: int
    name: str | None
    launches: Annotated[int, Meta(description="exact, since the probes were attached to it")]
    samples: int
    kernels: list[KernelLaunches]
    other_launches: Annotated[
        int | None, Meta(description="of kernels below the top; null before the first sample")
    ]
    other_kernels: int
    unnamed_launches: Annotated[
        int | None,
        Meta(
            description="of functions that were looked up before the probes were attached, of calls that "
            "name none, or beyond a process's share of names; null before the first sample"
        ),
    ]


class Kernels(Struct, frozen=True, gc=False):
    """Launches by kernel."""

    basis: Annotated[str, Meta(description="`counted`, `sampled 1 of N`, or `off`")]
    processes: Annotated[list[ProcessKernels], Meta(description="most launches first")]


def no_kernels(limit: int) -> Kernels:
    """What an agent says that has no probes."""
    return Kernels("off", [])


def basis_of(launch_gap: int) -> str:
    """How launches by kernel come about, for people."""
    return {0: "off", 1: "counted"}.get(launch_gap, f"sampled 1 of {launch_gap}")


def kernel_table(
    keys: NDArray[np.void],
    states: NDArray[np.void],
    launches: Mapping[int, int],
    names: Mapping[int, str],
    *,
    launch_gap: int,
    limit: int,
) -> Kernels:
    """KERNEL_KEY_DTYPE and KERNEL_STATE_DTYPE (N,) → rows, at most `limit` of each process.

    `launches`: pid → exact count; `names`: pid → the process's name.
    """
    by_pid: dict[int, list[int]] = {pid: [] for pid in launches}
    for row, pid in enumerate(keys["tgid"].tolist()):
        if states["samples"][row]:
            by_pid.setdefault(pid, []).append(row)
    processes = []
    for pid, rows in by_pid.items():
        named, unnamed = _by_name(keys[rows], states[rows])
        if launches.get(pid) or named or unnamed:
            total = launches.get(pid, 0)
            processes.append(_process(pid, names.get(pid) or None, total, named, unnamed, launch_gap, limit))
    processes.sort(key=lambda process: (-process.launches, process.pid))
    return Kernels(basis_of(launch_gap), processes)


class _Kernel:
    """Variants that read the same."""

    def __init__(self) -> None:
        self.samples = 0
        self.variants: set[bytes] = set()
        self.most = 0
        self.full_name: str | None = None
        self.source: NameSource | None = None


def _by_name(keys: NDArray[np.void], states: NDArray[np.void]) -> tuple[dict[str, _Kernel], int]:
    found: dict[str, _Kernel] = {}
    unnamed = 0
    columns = (states[name].tolist() for name in ("samples", "name", "source"))
    for name_hash, samples, raw, source in zip(keys["name_hash"].tolist(), *columns, strict=True):
        shown = GRAPH_NAME if name_hash == GRAPHS else short_name(raw)
        if name_hash == NO_KERNEL or not shown:
            unnamed += samples
            continue
        kernel = found.setdefault(shown, _Kernel())
        kernel.samples += samples
        kernel.variants.add(raw)
        if samples > kernel.most:
            kernel.most, kernel.full_name = samples, clean_name(raw) or None
            kernel.source = NameSource(min(source, max(NameSource))) if raw else None
    return found, unnamed


def _process(
    pid: int,
    name: str | None,
    launches: int,
    named: Mapping[str, _Kernel],
    unnamed: int,
    launch_gap: int,
    limit: int,
) -> ProcessKernels:
    ordered = sorted(named.items(), key=lambda each: (-each[1].samples, each[0]))
    top, below = ordered[:limit], ordered[limit:]
    samples = sum(kernel.samples for kernel in named.values()) + unnamed
    parts = [kernel.samples for _, kernel in top]
    estimates = split(launches, [*parts, sum(kernel.samples for _, kernel in below), unnamed])
    return ProcessKernels(
        pid=pid,
        name=name,
        launches=launches,
        samples=samples,
        kernels=[
            KernelLaunches(
                shown,
                estimate,
                kernel.samples,
                0.0 if launch_gap == 1 else sqrt((1 - kernel.samples / samples) / kernel.samples),
                len(kernel.variants),
                kernel.full_name,
                _SOURCES[kernel.source] if kernel.source is not None else None,
            )
            for (shown, kernel), estimate in zip(top, estimates, strict=False)
        ],
        other_launches=estimates[-2] if samples else None,
        other_kernels=len(below),
        unnamed_launches=estimates[-1] if samples else None,
    )


def split(total: int, parts: Sequence[int]) -> list[int]:
    """`total` in proportion to `parts`, in whole numbers that add up to it (largest remainder); all 0 where
    the parts are.
    """
    whole = sum(parts)
    if not whole:
        return [0] * len(parts)
    found = [total * part // whole for part in parts]
    remainders = sorted(range(len(parts)), key=lambda at: -(total * parts[at] % whole))
    for at in remainders[: total - sum(found)]:
        found[at] += 1
    return found
