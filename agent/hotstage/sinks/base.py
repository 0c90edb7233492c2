# SPDX-License-Identifier: Apache-2.0
"""What each tick hands to the outputs, and how one output's failure stays its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hotstage.breaker.record import BreakerRecord, Transition
from hotstage.devices.samples import DeviceSample
from hotstage.engines.samples import EngineSample
from hotstage.frame.frame import Frame
from hotstage.frame.memory_types import Memory, no_memory
from hotstage.frame.scheduling import SchedulingStep
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.probes.samples import CallSample
from hotstage.stages.pulse import Pulse, Rows, empty_rows
from hotstage.windows.window import WindowUpdate

log = logging.getLogger(__name__)

_NONE_FINISHED = empty_rows(FINISHED_DTYPE)


@dataclass(frozen=True, slots=True)
class Tick:
    """One fast tick's results. `frame`, `calls` and `scheduling` are None on ticks that made none."""

    pulse: Pulse
    windows: WindowUpdate
    breakers: tuple[BreakerRecord, ...]
    transitions: tuple[Transition, ...]
    wall_offset_ns: int
    """Wall minus monotonic time."""
    frame: Frame | None = None
    calls: CallSample | None = None
    devices: DeviceSample | None = None
    engines: tuple[EngineSample, ...] = ()
    endpoint_modality: Mapping[str, str] = field(default_factory=dict)
    gpu_of_pid: Mapping[int, str] = field(default_factory=dict)
    """GPU UUID of the processes that use exactly one."""
    finished: Rows = field(default_factory=lambda: _NONE_FINISHED)
    """FINISHED_DTYPE: requests that ended since the last tick, with all that the kernel knew of them."""
    scheduling: SchedulingStep | None = None
    memory: Memory = field(default_factory=no_memory)
    """What the scheduler did since the last slow tick; None on other ticks, and where it is not watched."""


class Sink(Protocol):
    """An output. `publish` is called on the tick: it takes note and returns, it never waits."""

    name: str

    def publish(self, tick: Tick) -> None: ...


class Sinks:
    """All outputs. An error of one is logged once until it works again, and counted.

    `watched` names outputs that are not told of ticks: whoever looks after them says how they are, by `note`.
    """

    def __init__(self, sinks: Sequence[Sink], watched: Sequence[str] = ()) -> None:
        self._sinks = tuple(sinks)
        self.errors = dict.fromkeys((*(sink.name for sink in sinks), *watched), 0)
        self._failing: set[str] = set()

    def publish(self, tick: Tick) -> None:
        for sink in self._sinks:
            try:
                sink.publish(tick)
            except Exception:
                self.errors[sink.name] += 1
                if sink.name not in self._failing:
                    self._failing.add(sink.name)
                    log.exception("an output failed", extra={"sink": sink.name})
            else:
                self._failing.discard(sink.name)

    def note(self, name: str, problem: str | None, remedy: str = "") -> None:
        """How a watched output is now: None is well."""
        if problem is None:
            self._failing.discard(name)
            return
        self.errors[name] += 1
        if name not in self._failing:
            self._failing.add(name)
            log.error("an output fails: %s", problem, extra={"sink": name, "remedy": remedy})
