# SPDX-License-Identifier: Apache-2.0
"""The tick: the whole program in one place, on the parts that it is given. It opens and starts nothing."""

from __future__ import annotations

import logging
from dataclasses import replace

from hotstage.api.view import View
from hotstage.breaker.record import Transition
from hotstage.clock import Clock
from hotstage.daemon.line import Step
from hotstage.daemon.orders import carry_out
from hotstage.daemon.parts import Parts
from hotstage.daemon.xids import XidMerge
from hotstage.devices.samples import DevicesState, no_devices
from hotstage.frame.frame import Frame
from hotstage.probes.samples import CallSample, FastSample
from hotstage.sinks.base import Tick
from hotstage.stages.places import Places

log = logging.getLogger(__name__)

FAST_NS = 100_000_000
SLOW_EVERY = 10


class Ticker:
    """`tick` every `FAST_NS`, by one thread; every `SLOW_EVERY`th reads and publishes the second, too. One
    that is early comes between two of them, and moves neither.
    """

    def __init__(self, parts: Parts, clock: Clock) -> None:
        self._parts = parts
        self._clock = clock
        self._endpoint_modality: dict[str, str] = {}
        self._xids = XidMerge()
        self.gpus = no_devices(0, DevicesState.starting, "not asked yet")
        """The GPUs as last heard."""
        self.was_slow = False
        """Whether the last tick was one that ends a second; as far as it came, if it failed."""

    def tick(self, *, is_early: bool = False) -> None:
        """The whole program: read, judge, decide, publish. `is_early`: the kernel has something urgent."""
        parts = self._parts
        self.was_slow = False
        began_ns = self._clock.monotonic_ns()
        ordered = carry_out(parts.overrides, parts.line.breakers, began_ns, parts.line.detectors.repaired)
        sample = parts.shares.apply(parts.engine.read_fast())
        self._poll_devices()
        if sample.xids or self.gpus.xids:
            sample = replace(sample, xids=self._xids.merge(sample.xids + self.gpus.xids))
        step = parts.line.fast(sample)
        decided_ns = self._clock.monotonic_ns()
        transitions = (*ordered, *step.transitions)
        records = parts.line.breakers.records
        parts.publisher.page(records, sample.at_ns)
        if transitions:
            parts.meter.paged(decided_ns)
        parts.sources.remember(sample, self.gpus)
        parts.publisher.changes(sample.at_ns, step.windows, transitions, records, parts.sources.freeze())
        room = parts.line.headroom.inputs(sample, self.gpus, parts.engine.ledger.stages())
        parts.engine.conflict.set_inputs(room)
        parts.meter.took(began_ns, is_slow=False, is_early=is_early)
        self.was_slow = not is_early and parts.meter.fast_ticks % SLOW_EVERY == 0
        second = self._slow_tick() if self.was_slow else None
        self._show(sample, step, transitions, second)

    def _poll_devices(self) -> None:
        """The GPUs as last heard; a change of what NVML can say is told once."""
        parts = self._parts
        before, self.gpus = self.gpus, parts.devices.poll()
        if before.state is not self.gpus.state:
            log.info("GPU values: %s", self.gpus.state.value, extra={"reason": self.gpus.reason})

    def _slow_tick(self) -> tuple[Frame, CallSample]:
        """Once a second: counters, devices and host, fused into a frame."""
        parts = self._parts
        began_ns = self._clock.monotonic_ns()
        calls = parts.engine.read_slow()
        scheduling = parts.engine.scheduler.read(calls.at_ns)
        parts.publisher.stepped(parts.engine.restraint.govern(calls, parts.engine.pids(), scheduling))
        host = parts.host.sample(parts.engine.pids())
        uuids = parts.process_gpus.refresh()
        memory = parts.engine.ledger.read(calls.at_ns, uuids)
        engines = parts.engines.latest()
        driver = parts.engine.driver_report()
        frame = parts.line.slow(calls.at_ns, calls, self.gpus, host, engines, scheduling, memory, driver)
        parts.sources.remember_frames(parts.line.history.frames())
        parts.sources.remember_places(
            Places(
                parts.engine.told.contexts(),
                uuids,
                self.gpus.index_by_uuid,
                parts.engine.told.stage_names(),
            )
        )
        self._endpoint_modality = dict(parts.line.fuser.endpoint_modality)
        parts.sinks.note("page", parts.page.trouble(), "restart the agent: it makes the page anew")
        parts.trimming.look(began_ns)
        parts.meter.took(began_ns, is_slow=True)
        return frame, calls

    def _show(
        self,
        sample: FastSample,
        step: Step,
        transitions: tuple[Transition, ...],
        second: tuple[Frame, CallSample] | None,
    ) -> None:
        """Make the tick's results readable: the API's view, then the outputs."""
        parts = self._parts
        records = parts.line.breakers.records
        frame, calls = second or (None, None)
        parts.process_gpus.meet(step.pulse.ended["pid"].tolist())
        parts.sinks.publish(
            Tick(
                pulse=step.pulse,
                windows=step.windows,
                breakers=records,
                transitions=transitions,
                wall_offset_ns=self._clock.wall_ns_of(0),
                frame=frame,
                calls=calls,
                devices=self.gpus,
                engines=parts.engines.latest(),
                endpoint_modality=self._endpoint_modality,
                gpu_of_pid=parts.process_gpus.of_pid,
                finished=sample.finished,
                scheduling=parts.line.fuser.scheduling.step if second else None,
                memory=parts.line.fuser.memory,
            )
        )
        parts.cell.swap(
            View(
                tick=parts.meter.fast_ticks + parts.meter.early_ticks,
                at_ns=step.pulse.at_ns,
                frame=parts.line.history.latest,
                is_stale=bool(step.pulse.stale),
                off_since_ns=parts.switch.off_since_ns,
                endpoint_modality=self._endpoint_modality,
                windows=step.windows.open,
                breakers=records,
            )
        )
