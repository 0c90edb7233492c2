# SPDX-License-Identifier: Apache-2.0
"""The detectors, as one tuple, and the little that they share. Knows no clock, no store and no network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hotstage.config.conflict import ConflictConfig
from hotstage.config.settings import DetectConfig
from hotstage.detect.demand import Demand
from hotstage.detect.finding import Finding
from hotstage.detect.progress import Progress
from hotstage.detect.rules.conflict import TokenConflict
from hotstage.detect.rules.cpu_starvation import CpuStarvation
from hotstage.detect.rules.death import Death
from hotstage.detect.rules.hang import Hang
from hotstage.detect.rules.rule_file import Rule
from hotstage.detect.rules.rule_set import RuleSet
from hotstage.detect.rules.shared_stream import SharedStream
from hotstage.detect.rules.xid import Xid
from hotstage.detect.stage_latency import StageLatency
from hotstage.devices.samples import DeviceSample
from hotstage.frame.entity import Entity, EntityKind
from hotstage.frame.frame import Frame
from hotstage.frame.history import History
from hotstage.stages.pulse import Pulse


class PulseDetector(Protocol):
    """Returns what is firing now, each time; keeps its own memory."""

    def observe_pulse(self, pulse: Pulse) -> list[Finding]: ...


class Detectors:
    """All detectors behind two verbs. Findings of the slow tick stand until the next one. Not thread-safe."""

    def __init__(
        self,
        config: DetectConfig,
        rules: Sequence[Rule] = (),
        conflict: ConflictConfig | None = None,
    ) -> None:
        self._progress, self._demand = Progress(), Demand()
        latency = StageLatency(config, self._progress, self._demand)
        self._xid = Xid(config)
        self._hang = Hang(config, self._progress, latency)
        self._conflict = TokenConflict(conflict or ConflictConfig())
        self.detectors: tuple[PulseDetector, ...] = (
            latency,
            self._hang,
            self._xid,
            Death(),
            self._conflict,
            SharedStream(),
        )
        self._starvation = CpuStarvation()
        self.rules = RuleSet(rules)
        self._of_frame: list[Finding] = []

    def know_devices(self, devices: DeviceSample) -> None:
        """The GPUs, so that an XID names its GPU as everything else does, and ends when that is back."""
        self._xid.know_devices(devices)

    def repaired(self, scope: Entity) -> None:
        """An operator says that what was wrong with this scope is over; only a GPU's fault lasts so long."""
        if scope.kind is EntityKind.gpu:
            self._xid.repaired(scope)

    def take_over(self, config: DetectConfig, rules: Sequence[Rule], conflict: ConflictConfig) -> None:
        """Other limits and rules from now on; what the old rules were firing ends. How stages are judged
        stays as it was: their baselines were learned with it.
        """
        self._hang.take_over(config)
        self._xid.take_over(config)
        self._conflict.take_over(conflict)
        self.rules = RuleSet(rules)
        self._of_frame = []

    def observe_pulse(self, pulse: Pulse) -> list[Finding]:
        """Fast tick: everything that is firing now, rules as of their last evaluation."""
        self._progress.observe(pulse)
        self._demand.observe(pulse)
        found = [finding for detector in self.detectors for finding in detector.observe_pulse(pulse)]
        return found + self._of_frame

    def observe_frame(self, frame: Frame, history: History) -> list[Finding]:
        """Slow tick: waits for CPUs, and the rules file; `history` holds `frame` already."""
        self._of_frame = self._starvation.observe_frame(frame) + self.rules.observe_frame(frame, history)
        return self._of_frame
