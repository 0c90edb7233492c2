# SPDX-License-Identifier: Apache-2.0
"""A process that allocates and frees, on a library with libcuda's names that keeps the truth."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.bpf.conftest import SOURCES, Build, Probes, Workload, wait_for_line

from hotstage.probes.catalogue.spec import Memory

KINDS = 15
TRUTH = ("live_bytes", "live_count", "allocated_bytes", "freed_bytes", "implicit_bytes")
DEVICE, PITCHED, POOL, HOST, PHYSICAL, RESERVED, ARRAY, SHARED, GRAPH, EXTERNAL, MULTICAST = (
    int(kind)
    for kind in (
        Memory.DEVICE,
        Memory.PITCHED,
        Memory.POOL,
        Memory.HOST,
        Memory.PHYSICAL,
        Memory.RESERVED,
        Memory.ARRAY,
        Memory.SHARED,
        Memory.GRAPH,
        Memory.EXTERNAL,
        Memory.MULTICAST,
    )
)
LIBRARY = tuple(SOURCES / name for name in ("memory_entries.S", "memory_bodies.c", "memory_elsewhere.c"))
TOO_MUCH, BLOCK, GRANULE = 0xDEAD0000, 0xB10C0000, 2 << 20


def build_memory(build: Build, out: Path) -> Build:
    """The same marks, with the memory library and its program in place of libcuda's."""
    cuda, program = out / "libtarget_memory.so", out / "memory"
    for command in (
        ["-shared", "-fPIC", "-o", cuda, *LIBRARY],
        ["-o", program, SOURCES / "memory.c", cuda, build.marks, f"-Wl,-rpath,{out}:{build.marks.parent}"],
    ):
        subprocess.run(["gcc", "-O2", "-Wall", "-pthread", *command], check=True)
    return replace(build, cuda=cuda, workload=program)


class MemoryTarget(Workload):
    """`truth` is what the library knows, while no call is made."""

    def truth(self) -> dict[str, np.ndarray]:
        """By `TRUTH`, uint64 (15,) by kind each, and `stage_bytes` (64,)."""
        self.say("truth")
        figures = np.array(wait_for_line(self.process, "its truth").split(), np.uint64)
        self.wait("the end of its truth")
        found = {name: figures[place * KINDS : (place + 1) * KINDS] for place, name in enumerate(TRUTH)}
        return {**found, "stage_bytes": figures[len(TRUTH) * KINDS :]}

    def new(self, register: int, kind: int, size: int) -> None:
        self.do("new", register, kind, size)

    def free(self, register: int, kind: int) -> None:
        self.do("free", register, kind)


def kinds_in_ledger(probes: Probes, pid: int) -> dict[str, np.ndarray]:
    """What the kernel says, in the shape of `MemoryTarget.truth`."""
    rows = probes.maps.ledger.read()
    keys, sums = rows.sums
    found = {name: np.zeros(KINDS, np.uint64) for name in TRUTH}
    for key, row in zip(keys, sums, strict=True):
        if key["tgid"] == pid and key["kind"]:
            for name in TRUTH:
                found[name][key["kind"]] += row[name]
    stages = np.zeros(64, np.uint64)
    for key, row in zip(*rows.stages, strict=True):
        if key["tgid"] == pid:
            stages[key["stage"] if key["stage"] < 64 else 0] += row["live_bytes"]
    return {**found, "stage_bytes": stages}


def sum_of(probes: Probes, pid: int, kind: int, name: str) -> int:
    """One figure of one kind, all devices."""
    keys, sums = probes.maps.ledger.read().sums
    return int(sums[name][(keys["tgid"] == pid) & (keys["kind"] == kind)].sum())


def entries_of(probes: Probes, pid: int) -> np.ndarray:
    """ALLOCATION_DTYPE rows of the process, by address."""
    keys, rows = probes.maps.ledger.read().allocations
    own = np.flatnonzero(keys["tgid"] == pid)
    return rows[own[np.argsort(keys["address"][own])]]


def assert_same(probes: Probes, target: MemoryTarget) -> None:
    """Ledger and truth agree in every figure of every kind and stage."""
    truth, ledger = target.truth(), kinds_in_ledger(probes, target.pid)
    for name, figures in truth.items():
        np.testing.assert_array_equal(ledger[name], figures, err_msg=name)
    entries = entries_of(probes, target.pid)
    assert len(entries) == truth["live_count"].sum()
    assert entries["bytes"].sum() == truth["live_bytes"].sum()
