# SPDX-License-Identifier: Apache-2.0
"""The line, as a table of contents: samples in, windows and breaker moves out. No thread, no file, no socket.

It is handed samples and gives back values; whoever calls it reads the kernel and publishes. Two verbs: `fast`
every 100 ms, work of fixed size; `slow` every second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hotstage.breaker.record import BreakerRecord, Transition
from hotstage.breaker.registry import BreakerSet
from hotstage.clock import Clock
from hotstage.config.conflict import ConflictConfig
from hotstage.config.settings import Config
from hotstage.daemon.process_gpus import gpu_of
from hotstage.detect.base import Detectors
from hotstage.detect.rules.rule_file import Rule
from hotstage.devices.samples import DeviceSample
from hotstage.engines.samples import EngineSample
from hotstage.frame.frame import Frame
from hotstage.frame.fuse import Fuser
from hotstage.frame.headroom import Headroom
from hotstage.frame.history import History
from hotstage.frame.request_costs import Penalties
from hotstage.frame.request_statistics import RequestStatistics
from hotstage.frame.request_timings import RequestTimings
from hotstage.host.samples import HostSample
from hotstage.probes.driver.report import DriverReport
from hotstage.probes.memory_sample import MemorySample
from hotstage.probes.samples import CallSample, FastSample, SchedulingSample
from hotstage.stages.labels import OwnNames, no_names
from hotstage.stages.pulse import Pulse, Rows
from hotstage.stages.tracker import Tracker
from hotstage.windows.assembler import Assembler
from hotstage.windows.ids import WindowIds
from hotstage.windows.window import WindowUpdate


@dataclass(frozen=True, slots=True)
class Step:
    """What one fast tick came to."""

    pulse: Pulse
    windows: WindowUpdate
    transitions: tuple[Transition, ...]


class Line:
    """Tracker → detectors → windows → breakers, and the fused frame once a second. Not thread-safe."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        rules: Sequence[Rule],
        *,
        tracker: Tracker | None = None,
        own_names: Callable[[], OwnNames] = no_names,
        limit_conflicts: Callable[[ConflictConfig], object] | None = None,
        gpu_of_pid: Callable[[], Mapping[int, str]] = dict,
    ) -> None:
        """`own_names`: what processes call the stages that they made up, as of now. `limit_conflicts`: what
        the kernel judges allocations by from now on. `gpu_of_pid`: UUIDs of processes that use one GPU.
        """
        self._gpu_of_pid = gpu_of_pid
        self.tracker = tracker or Tracker(own_names=own_names)
        self.fuser = Fuser(config.frame)
        self.history = History(config.frame.history_seconds)
        self.statistics = RequestStatistics(config.classes, config.frame)
        self.timings = RequestTimings(config.frame, own_names)
        self.headroom = Headroom(config.conflict)
        self.detectors = Detectors(config.detect, rules, config.conflict)
        self.assembler = Assembler(config.windows, WindowIds(clock))
        self.breakers = BreakerSet(config.breakers)
        self._limit_conflicts = limit_conflicts
        if limit_conflicts is not None:
            limit_conflicts(config.conflict)
        self._pulses: list[Pulse] = []
        self._threads: Rows | None = None
        self._penalties = Penalties()

    def fast(self, sample: FastSample) -> Step:
        """One pulse through detectors, windows and breakers."""
        pulse = self.tracker.advance(sample)
        self._threads = sample.threads
        self._pulses.append(pulse)
        self.statistics.keep(sample.at_ns, sample.finished)
        self.timings.keep(sample.finished)
        self.headroom.take(pulse)
        findings = self.detectors.observe_pulse(pulse)
        windows = self.assembler.advance(
            pulse.at_ns,
            findings,
            is_stale=bool(pulse.stale),
            penalties=self._penalties,
            gpu_of=partial(gpu_of, pulse=pulse, of_pid=self._gpu_of_pid()),
        )
        transitions = self.breakers.advance(pulse.at_ns, pulse, windows.open)
        return Step(pulse, windows, tuple(transitions))

    def slow(
        self,
        at_ns: int,
        calls: CallSample | None,
        devices: DeviceSample | None,
        host: HostSample | None,
        engines: Sequence[EngineSample] = (),
        scheduling: SchedulingSample | None = None,
        memory: MemorySample | None = None,
        driver: DriverReport | None = None,
    ) -> Frame:
        """The second that ends now, fused from its pulses and the slow sources; rules judge it."""
        pulses, self._pulses = self._pulses, []
        costs, tokens = self.statistics.costs(at_ns), self.timings.tokens(at_ns)
        self._penalties = costs.penalties
        frame = self.fuser.fuse(
            at_ns,
            pulses,
            calls,
            devices,
            host,
            engines,
            costs,
            tokens,
            scheduling,
            memory,
            driver,
            self._threads,
        )
        if memory is not None:
            self.headroom.know(at_ns, self.fuser.memory, memory.stages, calls)
        self.history.append(frame)
        if devices is not None:
            self.detectors.know_devices(devices)
        self.detectors.observe_frame(frame, self.history)
        return frame

    def take_over(self, config: Config, rules: Sequence[Rule]) -> None:
        """Other limits, rules and policy from now on; the next allocation is judged by them."""
        self.detectors.take_over(config.detect, rules, config.conflict)
        self.headroom.take_over(config.conflict)
        self.assembler.take_over(config.windows)
        self.breakers.take_over(config.breakers)
        if self._limit_conflicts is not None:
            self._limit_conflicts(config.conflict)

    def restore(self, records: Iterable[BreakerRecord]) -> None:
        """Breakers of the run before, on this boot's clock."""
        self.breakers.restore(records)
