# SPDX-License-Identifier: Apache-2.0
"""The agent: builds the rooms, wires them, ticks, ends in order. Never a formula, SQL or a socket."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import FrameType

from hotstage import __version__
from hotstage.api.access import Access
from hotstage.api.overrides import OverrideDesk
from hotstage.api.routes import Api, Router
from hotstage.api.server import ApiServer
from hotstage.api.view import Sources, View, ViewCell
from hotstage.attribution.worker import Attribution
from hotstage.breaker.page import BreakerPage
from hotstage.breaker.record import Transition
from hotstage.clock import Clock, boot_id
from hotstage.config.settings import Config
from hotstage.daemon.heartbeat import Heartbeat, signs_of, status_line
from hotstage.daemon.line import Line, Step
from hotstage.daemon.orders import carry_out
from hotstage.daemon.process_gpus import ProcessGpus
from hotstage.daemon.publisher import Publisher
from hotstage.daemon.reload import take_over
from hotstage.daemon.retention import Retention
from hotstage.daemon.selfcheck import SelfMeter
from hotstage.daemon.sources import LiveSources
from hotstage.daemon.switch import ProbeSwitch
from hotstage.daemon.xids import XidMerge
from hotstage.detect.rules.rule_file import load_rules
from hotstage.devices.parent import Devices
from hotstage.devices.samples import DevicesState, no_devices
from hotstage.engines.scraper import Engines
from hotstage.errors import HotstageError
from hotstage.frame.frame import Frame
from hotstage.host.identity import host_id
from hotstage.host.pressure import PressureReader, PressureWatch
from hotstage.host.sampler import HostSampler
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.restraint.switch import FILE_NAME, SwitchFile
from hotstage.probes.samples import CallSample, FastSample
from hotstage.service import NoManager, ServiceManager
from hotstage.sinks.base import Sinks, Tick
from hotstage.sinks.events import EventMaker
from hotstage.sinks.otlp.sink import Identity, otlp_sink
from hotstage.sinks.prometheus import PrometheusSink
from hotstage.sinks.self_facts import SelfFacts
from hotstage.sinks.slo import Slos
from hotstage.stages.places import Places
from hotstage.stages.shares import BatchShares
from hotstage.store.deliveries import Deliveries
from hotstage.store.store import Store

log = logging.getLogger(__name__)

FAST_NS = 100_000_000
SLOW_EVERY = 10
_SWITCH_SECONDS = 0.0005
"""Beside a busy tick, the API's threads wake in 0.8 ms instead of 5 ms (p99)."""


class Daemon:
    """`run` returns after SIGTERM or SIGINT. Raises HotstageError when the host cannot run it."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        reload: Callable[[], Config],
        service: ServiceManager | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._reload = reload
        self._stop = threading.Event()
        self._reload_asked = threading.Event()
        self._heart = Heartbeat(
            service or NoManager(),
            signs=lambda: signs_of(self.engine, self.publisher),
            status=lambda: status_line(self.engine, self.gpus.state),
        )
        self.meter = SelfMeter(clock)
        self.endpoint_modality: dict[str, str] = {}
        self._xids = XidMerge()
        self.gpus = no_devices(0, DevicesState.starting, "not asked yet")

    def run(self) -> None:
        sys.setswitchinterval(_SWITCH_SECONDS)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask_stop)
        signal.signal(signal.SIGHUP, self._ask_reload)
        # Until the switch is there, whoever sends one must not end the agent with it.
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self._ask_switch)
        with ExitStack() as stack:
            self._build(stack)
            # What exists now stays until the end: the collector need not look at it again and again.
            gc.collect()
            gc.freeze()
            self._loop()
            self._heart.stopping()

    def _build(self, stack: ExitStack) -> None:
        """Everything that can refuse comes first: addresses, the state directory, the port, the probes."""
        config, clock = self._config, self._clock
        access = Access.of(config.http)
        rules, problems = load_rules(config.detect.rules_files, builtin=config.detect.builtin_rules)
        for problem in problems:
            log.warning("a rule is left out: %s", problem)
        self.devices = Devices(config.devices, clock)
        self.engine = ProbeEngine(config.probes, clock, is_own=self.devices.owns, governor=config.governor)
        self.engine.conflict.limit(config.conflict)
        self.line = Line(config, clock, rules, own_names=self.engine.stage_names)
        self.shares = BatchShares()
        host = host_id()
        self.cell = ViewCell(socket.gethostname(), clock)
        self.store = Store(Path(config.store.directory), clock, boot_id())
        stack.callback(self.store.close)
        maker = EventMaker(host)
        self.store.begin_run(
            lambda stored: maker.window_closed(stored.window, stored.wall_offset_ns, is_interrupted=True)
        )
        self.page = BreakerPage(
            Path(config.page.path), boot_id(), round(config.page.stale_after_seconds * 1e9)
        )
        self.publisher = Publisher(
            self.store,
            self.page,
            maker,
            clock,
            store_config=config.store,
            page_config=config.page,
            snapshots=config.snapshots,
        )
        stack.callback(self._close_publisher)
        switch_file = SwitchFile(Path(config.store.directory) / FILE_NAME)
        self.switch = ProbeSwitch(switch_file, self.engine.restraint, clock, self.publisher.switched)
        restored = self.store.restored_breakers()
        self.line.restore(restored)
        self.publisher.know(restored)
        self.engines = Engines(config.engines, clock)
        proc_root = Path(config.probes.proc_root)
        self.pressure = PressureWatch(PressureReader(clock, proc_root), clock)
        stack.callback(self.pressure.close)
        self.host = HostSampler(clock, proc_root, pressure=self.pressure.latest)
        self.overrides = OverrideDesk()
        self.deliveries = Deliveries()
        self.sources = LiveSources(
            clock,
            self.engine,
            self.engines,
            self.publisher,
            self.store,
            self.deliveries,
            self.meter,
            problems,
        )
        self.attribution = Attribution(
            config.stages,
            self.engine,
            clock,
            Path(config.store.directory),
            proc_root=config.probes.proc_root,
            engines=self.engines.latest,
            stage_names=self.engine.stage_names,
        )
        self.prometheus = PrometheusSink(
            self._facts,
            Slos(config.slo.objectives),
            self.line.statistics.classes,
            self.line.timings.latency,
        )
        self.otlp = otlp_sink(
            config.otlp,
            os.environ,
            readings=self.prometheus.readings,
            clock=clock,
            identity=Identity(host, socket.gethostname(), __version__, clock.wall_ns()),
            own_names=self.engine.stage_names,
        )
        self.sinks = Sinks([self.prometheus, *([self.otlp] if self.otlp else [])], watched=("page",))
        api = Api(
            cell=self.cell,
            sources=self._table(),
            store=self.store,
            access=access,
            clock=clock,
            events=self.publisher.stream,
            outbox_bell=self.publisher.outbox_bell,
            overrides=self.overrides,
            deliveries=self.deliveries,
            recovery=config.recovery,
        )
        self.server = ApiServer(config.http, Router(api))
        stack.callback(self.server.stop)
        self.engine.start()
        stack.callback(self.engine.close)
        self.switch.start()
        stack.callback(self.switch.stop)
        self.meter.start_to_attached_seconds = self.engine.start_seconds
        self.meter.map_bytes = self.engine.map_bytes()
        self.process_gpus = ProcessGpus(self.engine.device_uuids)
        stack.callback(self.devices.close)
        self.engines.start()
        stack.callback(self.engines.close)
        self.pressure.start()
        stack.callback(self.attribution.close)
        self.attribution.start()
        self.publisher.start()
        self.server.start()
        Retention(self.store.database, config.store, clock, self._stop, self.sources.expired).start()
        if self.otlp:
            stack.callback(self.otlp.close)
            self.otlp.start()
        log.info("watching", extra={"loader": self.engine.loader, "rung": self.engine.rung})

    def tick(self) -> None:
        """The whole program: read, judge, decide, publish."""
        began_ns = self._clock.monotonic_ns()
        ordered = carry_out(self.overrides, self.line.breakers, began_ns, self.line.detectors.repaired)
        sample = self.shares.apply(self.engine.read_fast())
        self._poll_devices()
        if sample.xids or self.gpus.xids:
            sample = replace(sample, xids=self._xids.merge(sample.xids + self.gpus.xids))
        step = self.line.fast(sample)
        room = self.line.headroom.inputs(sample, self.gpus, self.engine.ledger.stages())
        self.engine.conflict.set_inputs(room)
        self.sources.remember(sample, self.gpus)
        transitions = (*ordered, *step.transitions)
        records = self.line.breakers.records
        self.publisher.page(records, sample.at_ns)
        self.publisher.changes(sample.at_ns, step.windows, transitions, records, self.sources.freeze())
        self.meter.took(began_ns, is_slow=False)
        second = self.slow_tick() if self.meter.fast_ticks % SLOW_EVERY == 0 else None
        self._show(sample, step, transitions, second)

    def _poll_devices(self) -> None:
        """The GPUs as last heard; a change of what NVML can say is told once."""
        before, self.gpus = self.gpus, self.devices.poll()
        if before.state is not self.gpus.state:
            log.info("GPU values: %s", self.gpus.state.value, extra={"reason": self.gpus.reason})

    def slow_tick(self) -> tuple[Frame, CallSample]:
        """Once a second: counters, devices and host, fused into a frame."""
        began_ns = self._clock.monotonic_ns()
        calls = self.engine.read_slow()
        self.publisher.stepped(self.engine.restraint.govern(calls, self.engine.pids()))
        host = self.host.sample(self.engine.pids())
        scheduling = self.engine.scheduler.read(calls.at_ns)
        uuids = self.process_gpus.refresh()
        memory = self.engine.ledger.read(calls.at_ns, uuids)
        engines = self.engines.latest()
        frame = self.line.slow(calls.at_ns, calls, self.gpus, host, engines, scheduling, memory)
        self.sources.remember_frames(self.line.history.frames())
        self.sources.remember_places(Places(self.engine.contexts(), uuids, self.engine.stage_names()))
        self.endpoint_modality = dict(self.line.fuser.endpoint_modality)
        self.sinks.note("page", self.page.trouble(), "restart the agent: it makes the page anew")
        self.meter.took(began_ns, is_slow=True)
        return frame, calls

    def _show(
        self,
        sample: FastSample,
        step: Step,
        transitions: tuple[Transition, ...],
        second: tuple[Frame, CallSample] | None,
    ) -> None:
        """Make the tick's results readable: the API's view, then the outputs."""
        records = self.line.breakers.records
        frame, calls = second or (None, None)
        self.process_gpus.meet(step.pulse.ended["pid"].tolist())
        self.sinks.publish(
            Tick(
                pulse=step.pulse,
                windows=step.windows,
                breakers=records,
                transitions=transitions,
                wall_offset_ns=self._clock.wall_ns_of(0),
                frame=frame,
                calls=calls,
                devices=self.gpus,
                engines=self.engines.latest(),
                endpoint_modality=self.endpoint_modality,
                gpu_of_pid=self.process_gpus.of_pid,
                finished=sample.finished,
                scheduling=self.line.fuser.scheduling.step if second else None,
                memory=self.line.fuser.memory,
            )
        )
        self.cell.swap(
            View(
                tick=self.meter.fast_ticks,
                at_ns=step.pulse.at_ns,
                frame=self.line.history.latest,
                is_stale=bool(step.pulse.stale),
                endpoint_modality=self.endpoint_modality,
                windows=step.windows.open,
                breakers=records,
            )
        )

    def _table(self) -> Sources:
        """What the API may ask of this process."""
        return Sources(
            coverage=self.sources.coverage,
            snapshot=self.sources.snapshot,
            requests=self.sources.requests,
            waterfall=self.sources.waterfall,
            frames=self.sources.frames,
            metrics=self.prometheus.render,
            health=self.sources.health,
            is_ready=self.sources.is_ready,
            classes=self.line.statistics.classes,
            explain=self.attribution.explain,
            components=self.line.timings.components,
            latency=self.line.timings.latency,
            memory=lambda: self.line.fuser.memory,
            kernels=self.engine.names.kernels,
            stacks=self.engine.names.stacks,
            heat_weight=self._config.frame.heat_weight,
            probes=self.switch.document,
            switch_probes=self.switch.order,
        )

    def _facts(self) -> SelfFacts:
        return self.sources.facts(
            page_dropped=self.page.dropped,
            sink_errors=self.sinks.errors,
            otlp=self.otlp.state() if self.otlp else None,
            threadless=self.server.threadless,
        )

    def _loop(self) -> None:
        next_ns = self._clock.monotonic_ns()
        while not self._stop.wait(max(0.0, (next_ns - self._clock.monotonic_ns()) / 1e9)):
            try:
                self.tick()
            except HotstageError as error:
                log.error("a tick failed: %s", error.message, extra={"remedy": error.remedy})
            else:
                self._heart.ticked(is_slow=self.meter.fast_ticks % SLOW_EVERY == 0)
            if self._reload_asked.is_set():
                self._reload_asked.clear()
                self._apply_reload()
            next_ns += FAST_NS
            behind_ns = self._clock.monotonic_ns() - next_ns
            if behind_ns > 0:
                self.meter.late_ticks += 1 + behind_ns // FAST_NS
                next_ns += (behind_ns // FAST_NS + 1) * FAST_NS

    def _apply_reload(self) -> None:
        """Take over all that a running agent can, name what needs a restart; a wrong one changes nothing."""
        self._heart.reloading()
        reload = take_over(self.line, self._config, self._reload)
        if isinstance(reload, HotstageError):
            self.meter.last_reload_successful = False
            log.error("not reloaded: %s", reload.message, extra={"remedy": reload.remedy})
            self._heart.reloaded(f"not reloaded: {reload.message}")
            return
        self._config = reload.config
        self.attribution.take_over(reload.config.stages)
        self.engine.beside.custom.reload()
        self.sources.rules_left_out = ()
        self.meter.last_reload_successful = True
        log.info(
            "configuration reloaded",
            extra={
                "rules": len(reload.rules),
                "taken": reload.taken,
                "needs_restart": reload.needs_restart,
            },
        )
        waiting = ", ".join(reload.needs_restart)
        self._heart.reloaded(f"needs a restart: {waiting}" if waiting else "")

    def _close_publisher(self) -> None:
        left = self.publisher.close()
        if left:
            log.error("changes could not be written before the end", extra={"changes": left})

    def _ask_stop(self, signum: int, frame: FrameType | None) -> None:
        self._stop.set()

    def _ask_switch(self, signum: int, frame: FrameType | None) -> None:
        if switch := getattr(self, "switch", None):
            switch.ask(off=signum == signal.SIGUSR1)

    def _ask_reload(self, signum: int, frame: FrameType | None) -> None:
        self._reload_asked.set()
