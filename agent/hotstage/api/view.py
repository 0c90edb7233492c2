# SPDX-License-Identifier: Apache-2.0
"""What the API reads: one immutable view that each tick replaces, and the few things asked for on demand.

The tick pays for a view with one assignment: bodies are made when somebody asks, once per tick, and kept as
bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from hotstage.api.documents import Document
from hotstage.api.probes import SwitchOrder, no_probes, no_switch
from hotstage.api.requests import Filter
from hotstage.breaker.record import BreakerRecord
from hotstage.clock import Clock, rfc3339
from hotstage.frame.class_table import ClassTable, no_classes
from hotstage.frame.component_table import no_components
from hotstage.frame.frame import Frame
from hotstage.frame.latency_types import Components, Latency
from hotstage.frame.memory_types import Memory, no_memory
from hotstage.frame.token_latency import no_latency
from hotstage.probes.kernel_table import Kernels, no_kernels
from hotstage.probes.stacks import Stacks, no_stacks
from hotstage.stages.snapshot_types import Snapshot
from hotstage.stages.waterfall_types import Requests, Waterfall
from hotstage.windows.window import AnomalyWindow


def no_waterfall(request_id: str) -> Waterfall | None:
    """What an agent says that has seen no request."""
    return None


def no_explanation(pid: int) -> Document | None:
    """What an agent says that follows no process."""
    return None


@dataclass(frozen=True, slots=True)
class View:
    """The host as of one tick. `at_ns` is CLOCK_MONOTONIC; `frame` is None until the first second is over."""

    tick: int
    at_ns: int
    frame: Frame | None = None
    is_stale: bool = False
    off_since_ns: int | None = None
    """Wall time since when the probes are switched off; None: they are on."""
    endpoint_modality: Mapping[str, str] = field(default_factory=dict)
    windows: tuple[AnomalyWindow, ...] = ()
    """The open ones; closed ones are in the store."""
    breakers: tuple[BreakerRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Health:
    """`status` is ok, degraded or failing; a check's value is a sentence or a number, for people."""

    status: str
    checks: Document


@dataclass(frozen=True, slots=True)
class Sources:
    """What is too dear or too live for a view. Called from the API's threads; each answers on its own."""

    coverage: Callable[[], Document]
    snapshot: Callable[[], Snapshot]
    requests: Callable[[int, int, Filter], Requests]
    """(after, limit, which) → finished requests."""
    frames: Callable[[Sequence[str], float], Document]
    """(columns, seconds) → the last frames; empty columns = all."""
    metrics: Callable[[str], tuple[bytes, str]]
    """(Accept header) → exposition and its content type."""
    health: Callable[[], Health]
    is_ready: Callable[[], tuple[bool, Document]]
    classes: Callable[[int], ClassTable] = no_classes
    """(CLOCK_MONOTONIC of the tick) → finished requests by class."""
    components: Callable[[int], Components] = no_components
    """The same → their time by stage and wait."""
    latency: Callable[[int], Latency] = no_latency
    """The same → their first tokens, and what made them."""
    memory: Callable[[], Memory] = no_memory
    """What is allocated, as of the last second."""
    kernels: Callable[[int], Kernels] = no_kernels
    """(rows of each process at most) → launches by kernel, as of now."""
    stacks: Callable[[], Stacks] = no_stacks
    """Where slow and failing calls were made."""
    waterfall: Callable[[str], Waterfall | None] = no_waterfall
    """(id or number) → a finished request, None if it is not kept."""
    explain: Callable[[int], Document | None] = no_explanation
    """(pid) → why each of its threads counts as what it does, None if it is not followed."""
    heat_weight: str = "requests"
    """`[frame] heat_weight`."""
    probes: Callable[[], Document] = no_probes
    """What the kill switch says."""
    switch_probes: Callable[[SwitchOrder, str], Document] = no_switch
    """(order, actor) → the same once it is carried out."""


class ViewCell:
    """Holds the current view; the tick swaps it, the API's threads read it and share what they make of it."""

    def __init__(self, host: str, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._lock = threading.Lock()
        # Replaced as one, so that a body never meets another view than its own.
        self._current: tuple[View, dict[str, bytes]] = (View(0, clock.monotonic_ns(), is_stale=True), {})

    @property
    def view(self) -> View:
        return self._current[0]

    def swap(self, view: View) -> None:
        """From now on this is the host. Never waits for a reader."""
        self._current = (view, {})

    def body(self, key: str, make: Callable[[View], Document]) -> tuple[View, bytes]:
        """The JSON of `make(view)` with the common fields, made at most once per tick and key."""
        view, bodies = self._current
        made = bodies.get(key)
        if made is None:
            with self._lock:
                made = bodies.get(key)
                if made is None:
                    made = bodies[key] = self.encode(view, make(view))
        return view, made

    def encode(self, view: View, document: Document) -> bytes:
        """`document` as JSON with `at`, `at_ns`, `host`, `off_since`, `stale`, `tick`; NaN becomes null."""
        at_ns = self._clock.wall_ns_of(view.at_ns)
        common = {
            "at": rfc3339(at_ns),
            "at_ns": at_ns,
            "host": self._host,
            "off_since": None if view.off_since_ns is None else rfc3339(view.off_since_ns),
            "stale": view.is_stale,
            "tick": view.tick,
        }
        return msgspec.json.encode({**common, **document})
