# SPDX-License-Identifier: Apache-2.0
"""Every room of the agent, made and wired: what can refuse is made first, then all is started in order.

It ticks nothing and decides nothing; `process` does, with these.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import msgspec

from hotstage import __version__
from hotstage.api.access import Access
from hotstage.api.overrides import OverrideDesk
from hotstage.api.routes import Api, Router
from hotstage.api.server import ApiServer
from hotstage.api.view import Sources, ViewCell
from hotstage.attribution.worker import Attribution
from hotstage.breaker.page import BreakerPage
from hotstage.clock import Clock, boot_id
from hotstage.config.settings import Config
from hotstage.daemon.line import Line
from hotstage.daemon.process_gpus import ProcessGpus
from hotstage.daemon.publisher import Publisher
from hotstage.daemon.retention import Retention
from hotstage.daemon.selfcheck import SelfMeter
from hotstage.daemon.sources import LiveSources
from hotstage.daemon.switch import ProbeSwitch
from hotstage.daemon.trimming import Trimming
from hotstage.detect.rules.rule_file import load_rules
from hotstage.devices.parent import Devices
from hotstage.engines.engines import Engines
from hotstage.frame.memory_types import Memory
from hotstage.host.identity import host_id
from hotstage.host.pressure import PressureReader, PressureWatch
from hotstage.host.sampler import HostSampler
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.restraint.switch import FILE_NAME, SwitchFile
from hotstage.sinks.base import Sinks
from hotstage.sinks.events import EventMaker
from hotstage.sinks.otlp.sink import Identity, otlp_sink
from hotstage.sinks.prometheus import PrometheusSink
from hotstage.sinks.self_facts import SelfFacts
from hotstage.sinks.slo import Slos
from hotstage.stages.shares import BatchShares
from hotstage.store.deliveries import Deliveries
from hotstage.store.store import Store

log = logging.getLogger(__name__)


class Parts:
    """Made, then `start`. What is open is closed by `stack`, in the reverse order."""

    def __init__(self, config: Config, clock: Clock, meter: SelfMeter, stack: ExitStack) -> None:
        """What can refuse: addresses, rules, the state directory, the port. Raises HotstageError."""
        self._config = config
        self._clock = clock
        self._stack = stack
        self.meter = meter
        self.trimming = Trimming()
        access = Access.of(config.http)
        self._sources_of_truth()
        self._state()
        self._inputs()
        self._outputs()
        self._api(access)

    def _sources_of_truth(self) -> None:
        """What is seen, and the line that judges it."""
        config, clock = self._config, self._clock
        rules, self.rule_problems = load_rules(config.detect.rules_files, builtin=config.detect.builtin_rules)
        for problem in self.rule_problems:
            log.warning("a rule is left out: %s", problem)
        self.devices = Devices(config.devices, clock)
        self.engine = ProbeEngine(config.probes, clock, is_own=self.devices.owns, governor=config.governor)
        self.process_gpus = ProcessGpus(self.engine.told.device_uuids)
        self.line = Line(
            config,
            clock,
            rules,
            own_names=self.engine.told.stage_names,
            limit_conflicts=self.engine.conflict.limit,
            gpu_of_pid=lambda: self.process_gpus.of_pid,
        )
        self.shares = BatchShares()

    def _state(self) -> None:
        """What is on disk and in shared memory, and what the run before left there."""
        config, clock = self._config, self._clock
        directory = Path(config.store.directory)
        self.cell = ViewCell(socket.gethostname(), clock)
        self.store = Store(directory, clock, boot_id())
        self._stack.callback(self.store.close)
        maker = EventMaker(host_id())
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
        self._stack.callback(self._close_publisher)
        switch_file = SwitchFile(directory / FILE_NAME)
        self.switch = ProbeSwitch(switch_file, self.engine.restraint, clock, self.publisher.switched)
        restored = self.store.restored_breakers()
        self.line.restore(restored)
        self.publisher.know(restored)

    def _inputs(self) -> None:
        """What is seen beside the probes, and what unmarked work counts as."""
        config, clock = self._config, self._clock
        self.engines = Engines(config.engines, clock)
        proc_root = Path(config.probes.proc_root)
        self.pressure = PressureWatch(PressureReader(clock, proc_root), clock)
        self._stack.callback(self.pressure.close)
        self.host = HostSampler(clock, proc_root, pressure=self.pressure.latest)
        self.attribution = Attribution(
            config.stages,
            self.engine.unmarked,
            clock,
            Path(config.store.directory),
            proc_root=config.probes.proc_root,
            engines=self.engines.latest,
            stage_names=self.engine.told.stage_names,
        )

    def _outputs(self) -> None:
        """Metrics and spans."""
        config, clock = self._config, self._clock
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
            self.rule_problems,
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
            identity=Identity(host_id(), socket.gethostname(), __version__, clock.wall_ns()),
            own_names=self.engine.told.stage_names,
        )
        self.sinks = Sinks([self.prometheus, *([self.otlp] if self.otlp else [])], watched=("page",))

    def _api(self, access: Access) -> None:
        api = Api(
            cell=self.cell,
            sources=self._table(),
            store=self.store,
            access=access,
            clock=self._clock,
            events=self.publisher.stream,
            outbox_bell=self.publisher.outbox_bell,
            overrides=self.overrides,
            deliveries=self.deliveries,
            recovery=self._config.recovery,
        )
        self.server = ApiServer(self._config.http, Router(api))
        self._stack.callback(self.server.stop)

    def start(self, stop: threading.Event) -> None:
        """The probes first, which can refuse, too; the API last, when there is something to ask. `stop` ends
        what waits by itself.
        """
        stack = self._stack
        self.engine.start()
        stack.callback(self.engine.close)
        self.switch.start()
        stack.callback(self.switch.stop)
        self.meter.start_to_attached_seconds = self.engine.start_seconds
        self.meter.map_bytes = self.engine.map_bytes()
        stack.callback(self.devices.close)
        self.engines.start()
        stack.callback(self.engines.close)
        self.pressure.start()
        stack.callback(self.attribution.close)
        self.attribution.start()
        self.publisher.start()
        self.server.start()
        Retention(self.store.database, self._config.store, self._clock, stop, self.sources.expired).start()
        if self.otlp:
            stack.callback(self.otlp.close)
            self.otlp.start()
        log.info("watching", extra={"loader": self.engine.loader, "rung": self.engine.rung})

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
            memory=self._memory,
            kernels=self.engine.names.kernels,
            stacks=self.sources.stacks,
            heat_weight=self._config.frame.heat_weight,
            probes=self.switch.document,
            switch_probes=self.switch.order,
        )

    def _memory(self) -> Memory:
        """As of the last second; while the probes are off nothing of processes, which go on all the same."""
        memory, off = self.line.fuser.memory, self.engine.restraint.off
        if off is None:
            return memory
        return msgspec.structs.replace(memory, processes=[], stages=[], unobserved=off)

    def _facts(self) -> SelfFacts:
        return self.sources.facts(
            page_dropped=self.page.dropped,
            sink_errors=self.sinks.errors,
            otlp=self.otlp.state() if self.otlp else None,
            threadless=self.server.threadless,
        )

    def _close_publisher(self) -> None:
        left = self.publisher.close()
        if left:
            log.error("changes could not be written before the end", extra={"changes": left})
