# SPDX-License-Identifier: Apache-2.0
"""What is watched, since when, and what is not: values only, ready for JSON. Nothing is attached or counted
here.

An epoch is one process and one library from attach complete to detach begun; only inside it are counts exact.
Times are CLOCK_MONOTONIC ns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from hotstage.probes.copies import CopyTotals
from hotstage.probes.custom.watch import CustomReport
from hotstage.probes.discovery.api_table import ApiTable
from hotstage.probes.discovery.targets import MissedSymbol
from hotstage.probes.driver.report import DriverReport
from hotstage.probes.maps.communicators import Communicator
from hotstage.probes.restraint.governor import GovernorView
from hotstage.probes.trial.report import TrialReport


class LibraryState(StrEnum):
    """How far a library of a process is covered."""

    ATTACHED = "attached"
    ALIAS = "alias"
    """The same file by another path: counted through the one that was attached first."""
    IGNORED = "ignored"
    """Known by name, but the catalogue has no call of it (yet)."""
    FAILED = "failed"
    DENIED = "denied"
    """An entry of the deny list names it."""
    LIMITED = "limited"
    """Its user has as many libraries attached as one user may have."""
    OFF = "off"
    """Its probes are away: switched off, or too dear for the process."""


@dataclass(frozen=True, slots=True)
class LibraryCoverage:
    """One library in one process. `attached` and `emulated` count symbols; `since_ns` is None outside an
    epoch.

    `from_start`: the probes were there before the process mapped the library, so nothing it ever called is
    missing.
    """

    kind: str
    path: str
    build_id: str | None
    attached: int
    emulated: int
    state: LibraryState
    since_ns: int | None
    from_start: bool
    reason: str | None
    trial: TrialReport | None = None
    """What was tried before the attach; None where there is nothing to try, or trials are off."""
    api_table: ApiTable | None = None
    """Of a library whose functions are reached through a table alone: what its file said of it."""


@dataclass(frozen=True, slots=True)
class ProcessCoverage:
    pid: int
    name: str
    libraries: tuple[LibraryCoverage, ...]


@dataclass(frozen=True, slots=True)
class Epoch:
    """A finished epoch: these calls of this process were all counted."""

    pid: int
    kind: str
    path: str
    since_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class CallCount:
    """`counted` = returned + abandoned + `open`: what the target made."""

    counted: int
    open: int


@dataclass(frozen=True, slots=True)
class KernelTotals:
    """Kernels that the driver's launches ran: calls but for `captured` ones, and what graphs replayed.

    `kernels` is None where graphs were launched of nobody knows how many kernels (`unknown_graph_launches`).
    """

    kernels: int | None
    captured: int
    replayed: int
    unknown_graph_launches: int


@dataclass(frozen=True, slots=True)
class CallTotals:
    """Exact sums since the agent started, processes that have gone included; `lost` calls are not in
    `counted`.

    All of the driver's layer; `other_layers` has `runtime` (errors that never reached the driver, and all
    calls where no driver is seen) and `library` (NCCL, cuDNN, libav, ONNX Runtime), never added to it.
    """

    counted: int
    open: int
    lost: int
    by_call: Mapping[str, CallCount]
    by_pid: Mapping[int, Mapping[str, CallCount]]
    other_layers: Mapping[str, Mapping[str, CallCount]] = field(default_factory=dict)
    launched: KernelTotals | None = None
    copies: CopyTotals = field(default_factory=dict)
    """Of the driver's layer, and of the runtime's where it counts instead."""


@dataclass(frozen=True, slots=True)
class Side:
    """A source beside the counters (XID lines, the scheduler): whether it runs, through what, or why not."""

    state: str
    through: str | None
    reason: str | None
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class DiscoveryHealth:
    """What the search for processes could not see; all but `stuck` and `held_back` count up from the start.

    `stuck`: look-ups that hang right now; `abandoned`: ever given up; `lost_records`: side-band records
    dropped by the kernel, after which everything was scanned again; `truncated`: processes with more
    mappings than are read; `limited`: libraries beyond what one user may have attached; `held_back`: look-ups
    that wait right now because those of their user have taken too much of a processor.
    """

    stuck: int
    abandoned: int
    lost_records: int
    truncated: int
    rescans: int
    limited: int
    held_back: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """All of it at one moment. `attached` counts symbols that are probed, each library once."""

    loader: str
    rung: str
    epoch_ns: int
    start_seconds: float | None
    processes: tuple[ProcessCoverage, ...]
    attached: int
    emulated: int
    missed: tuple[MissedSymbol, ...]
    epochs: tuple[Epoch, ...]
    calls: CallTotals
    losses: Mapping[str, int]
    xid: Side
    driver: DriverReport
    custom: tuple[CustomReport, ...]
    discovery: DiscoveryHealth
    communicators: tuple[Communicator, ...] = ()
    refused_rungs: Mapping[str, str] = field(default_factory=dict)
    map_bytes: Mapping[str, int] = field(default_factory=dict)
    """Kernel memory by map."""
    off: str | None = None
    """Why nothing is attached at all; None while libraries are."""
    scheduler: Side = field(default_factory=lambda: Side("off", None, None))
    page_faults: Side = field(default_factory=lambda: Side("off", None, None))
    governor: GovernorView | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers, keys as the fields."""
        return asdict(self)
