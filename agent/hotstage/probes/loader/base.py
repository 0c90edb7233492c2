# SPDX-License-Identifier: Apache-2.0
"""The seam between what wants to probe and what loads programs: targets, points, links, the Loader protocol.

No system call and no ctypes here: `libbpf.py` and `bcc.py` load, `links.py` attaches for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from hotstage.config.settings import ProbesConfig
from hotstage.probes.loader.keeping import KeptDescriptor


class Rung(StrEnum):
    """How uprobes are linked, from the best to the oldest; chosen by trying, before anything is loaded."""

    SESSION = "S"
    """One `uprobe.session` link per library and kind (kernel >= 6.13)."""
    MULTI = "M"
    """A `uprobe.multi` link for entries and one for returns (>= 6.6)."""
    PERF = "P"
    """A perf-event link per point and side (>= 5.15): CAP_SYS_ADMIN, and 0.1 s each to detach."""


class PointKind(StrEnum):
    """Which program a point gets; the value is what coverage shows."""

    LAUNCH = "launch"
    TIMED = "timed"
    OUTER = "outer"
    COMMUNICATOR = "communicator"
    KERNEL_REGISTERED = "kernel_registered"
    STAGE_BEGIN = "stage_begin"
    STAGE_END = "stage_end"
    SPAN_BEGIN = "span_begin"
    SPAN_END = "span_end"
    REQUEST_BEGIN = "request_begin"
    REQUEST_END = "request_end"
    TOKENS = "tokens"
    STAGE_NAME = "stage_name"
    BATCH_BEGIN = "batch_begin"
    BATCH_END = "batch_end"
    EMBEDDING = "embedding"
    NVTX_PUSH = "nvtx_push"
    NVTX_POP = "nvtx_pop"
    TORCH_REPORT = "torch_report"
    TORCH_OUT_OF_MEMORY = "torch_out_of_memory"
    TORCH_MALLOC = "torch_malloc"
    TORCH_FREE = "torch_free"


@dataclass(frozen=True, slots=True)
class OpenLibrary:
    """A library file that was opened once; everything is read and attached through `fd`.

    `kind` is a `LibrarySpec.kind`; `path` is where it was seen (for people, never for attaching).
    """

    fd: int
    path: str
    device: int
    inode: int
    size: int
    build_id: str | None
    kind: str


@dataclass(frozen=True, slots=True)
class AttachPoint:
    """One symbol to probe. `offset` is the file offset that is probed, after placement.

    `symbol_offset` is the file offset of the symbol itself; `is_emulated` says whether the instruction at
    `offset` is one the kernel emulates (cheap) rather than single-steps. A USDT site has the file offset of
    its semaphore (0 = none) and where its operands are (`usdt.pack_operands`).
    """

    call_id: int
    symbol: str
    offset: int
    kind: PointKind
    is_emulated: bool
    symbol_offset: int
    layer: int = 0
    is_fallback: bool = False
    """Attached only while some process's driver is not: `runtime_launches.py`."""
    semaphore_offset: int = 0
    operands: int = 0

    @property
    def cookie(self) -> int:
        """What the program reads with bpf_get_attach_cookie: the call id, the layer or the operands above."""
        return self.call_id | self.layer << 16 | self.operands << 16


@dataclass(slots=True)
class Link:
    """An attachment in the kernel; it ends when all that holds it is closed (`links.detach`)."""

    fds: list[int]
    kind: PointKind
    points: tuple[AttachPoint, ...]
    kept: list[KeptDescriptor] = field(default_factory=list)
    """Those of `fds` that went into tables of their own, in the same order."""

    @property
    def in_kernel(self) -> int:
        """How many links the kernel has for it."""
        return len(self.fds) + len(self.kept)


@dataclass(frozen=True, slots=True)
class RefusedPoint:
    """A point the kernel would not take, and why."""

    point: AttachPoint
    reason: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """What attaching one library gave: links that hold, points refused one by one, and the time it took."""

    links: tuple[Link, ...]
    refused: tuple[RefusedPoint, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class LoadedPrograms:
    """Descriptors of what is in the kernel now: programs and maps by their names in bpf/."""

    rung: Rung
    programs: Mapping[str, int]
    maps: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MapSizes:
    """Entries of the maps whose size follows the work on the host."""

    threads: int = 16384
    call_stats: int = 16384
    call_histograms: int = 2048
    pipeline_state: int = 8192
    contexts: int = 4096
    torch_blocks: int = 65536
    events_bytes: int = 4 << 20
    urgent_bytes: int = 256 << 10
    by_name: Mapping[str, int] = field(default_factory=dict)
    """Overrides by the map's own name, for tests that want one to be full."""

    @classmethod
    def of(cls, config: ProbesConfig) -> MapSizes:
        """The sizes that the agent asks for."""
        return cls(
            threads=config.threads,
            call_stats=config.call_keys,
            call_histograms=config.histogram_slots,
            pipeline_state=config.requests,
            torch_blocks=config.torch_blocks if config.torch_memory else 1,
            events_bytes=config.events_ring_bytes,
        )

    def entries(self) -> dict[str, int]:
        """max_entries by map name."""
        return {
            "threads": self.threads,
            "call_stats": self.call_stats,
            "call_histograms": self.call_histograms,
            "free_histograms": self.call_histograms,
            "pipeline_state": self.pipeline_state,
            "contexts": self.contexts,
            "device_uuids": self.contexts,
            "torch_blocks": self.torch_blocks,
            "torch_segments": max(1, self.torch_blocks // 4),
            "events": self.events_bytes,
            "urgent": self.urgent_bytes,
            **self.by_name,
        }


class Loader(Protocol):
    """Loads the counting and marks programs and attaches them; one per run of the agent."""

    name: str
    """`libbpf` or `bcc`."""

    def load(self, sizes: MapSizes, rung: Rung | None = None) -> LoadedPrograms:
        """Load on the best rung that this kernel and these privileges take, or on the one given.

        Raises LoadError with the end of the verifier's log, PrivilegeError, or PreflightError.
        """
        ...

    def attach(self, target: OpenLibrary, points: Sequence[AttachPoint], *, pid: int = 0) -> Attachment:
        """Attach the points of one library; what the kernel refuses is listed, the rest holds.

        `pid`: only in this process, where others run through untouched code (rung S); 0: wherever it is
        mapped.
        """
        ...

    def map_fd(self, name: str) -> int:
        """Descriptor of a map by its name in bpf/; KeyError when the programs have none of that name."""
        ...

    def close(self) -> None:
        """Detach nothing that the caller holds links to; let programs and maps go."""
        ...
