# SPDX-License-Identifier: Apache-2.0
"""Pulses, call counters, devices and host → one frame a second, all sources on one time. Never judges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from hotstage.config.settings import FrameConfig
from hotstage.devices.samples import HARDWARE_SLOWDOWN, DeviceSample, DevicesState
from hotstage.engines.samples import EngineSample
from hotstage.frame.align import age_seconds, is_fresh
from hotstage.frame.call_rates import CallRates, Counts
from hotstage.frame.columns import COLUMN_INDEX, COLUMNS, columns_of
from hotstage.frame.driver import DriverRates
from hotstage.frame.engines import fill_engines
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.frame import Frame
from hotstage.frame.memory import fill_memory
from hotstage.frame.memory_table import MemoryTable
from hotstage.frame.memory_types import no_memory
from hotstage.frame.open_calls import fill_open_calls
from hotstage.frame.pressure import fill_pressure
from hotstage.frame.request_costs import RequestCosts
from hotstage.frame.rolling import Rows
from hotstage.frame.scheduling import SchedulingRates, put_scheduling, wait_quantiles
from hotstage.frame.served import Cells, Served
from hotstage.frame.token_latency import fill_token_latency
from hotstage.host.samples import HostSample
from hotstage.probes.driver.report import DriverReport
from hotstage.probes.memory_sample import MemorySample
from hotstage.probes.samples import CallSample, SchedulingSample
from hotstage.stages.labels import StageLabels
from hotstage.stages.pulse import Pulse
from hotstage.stages.stage import NO_STAGE, modality_name
from hotstage.stages.tracker import PROBES_OFF

_PLACES = {
    kind: {column.name: COLUMN_INDEX[column.name] for column in columns_of(kind)} for kind in EntityKind
}
"""Kind → the columns that speak of it."""

_NO_COSTS = RequestCosts()
_ORDER = {kind: place for place, kind in enumerate(EntityKind)}
_REMEMBERED_NS = 60_000_000_000
"""How long a process that holds no request is still its instance's: between two requests it may work hard."""
_EVER_SAMPLED = frozenset({DevicesState.sampling, DevicesState.failed, DevicesState.hung})


class Fuser:
    """`fuse` once a second with the pulses since the last time. Not thread-safe."""

    def __init__(self, config: FrameConfig) -> None:
        self._max_age_ns = round(config.stale_after_seconds * 1e9)
        self._min_samples = config.quantile_min_samples
        self._served = Served(config)
        self._calls = CallRates()
        self.scheduling = SchedulingRates()
        self._drivers = DriverRates()
        self._memory_table = MemoryTable()
        self.memory = no_memory()
        """Of the last frame: memory by GPU, process and stage."""
        self._labels = StageLabels()
        self._calls_ns: int | None = None
        self._last_ns: int | None = None
        self._instance_of: dict[int, tuple[str, int]] = {}  # pid → its instance, when it was last seen

    @property
    def endpoint_modality(self) -> Mapping[str, str]:
        """Endpoint → the modality of most of its requests so far."""
        return self._served.endpoint_modality

    def fuse(
        self,
        at_ns: int,
        pulses: Sequence[Pulse],
        calls: CallSample | None = None,
        devices: DeviceSample | None = None,
        host: HostSample | None = None,
        engines: Sequence[EngineSample] = (),
        costs: RequestCosts = _NO_COSTS,
        tokens: Rows | None = None,
        scheduling: SchedulingSample | None = None,
        memory: MemorySample | None = None,
        driver: DriverReport | None = None,
        threads: Rows | None = None,
    ) -> Frame:
        """The frame of the second that ends at `at_ns` (CLOCK_MONOTONIC). None = that source is unknown.
        While the probes are off it has nothing that they tell, and what they tell later counts from then on.

        `tokens`: TOKENS_DTYPE of `timing_rows`, the requests of the latency window. `threads`: THREAD_DTYPE
        as of the last pulse.
        """
        is_blind = any(PROBES_OFF in pulse.stale for pulse in pulses)
        self._served.take(pulses)
        for pulse in pulses:
            self._note_processes(pulse)
        if is_blind:
            self._calls.rest()
            scheduling = None
        elif calls is not None:
            self._labels = pulses[-1].names.stages if pulses else self._labels
            self._calls.take(
                calls, self._labels, [pulse.shares for pulse in pulses if pulse.shares is not None]
            )
            self._calls_ns = calls.at_ns
        self.scheduling.take(scheduling, self._labels)
        cells: Cells = {HOST: {}}
        if not is_blind:
            self._fill_requests(at_ns, pulses, cells, costs, tokens)
        pids = self._pids_by_instance(at_ns)
        calls_are_fresh = not is_blind and is_fresh(self._calls_ns, at_ns, self._max_age_ns)
        if calls_are_fresh:
            self._fill_calls(pids, cells)
        if threads is not None and pulses and not is_blind:
            fill_open_calls(threads, pulses[-1].at_ns, self._labels, cells)
        self._fill_scheduling(pids, cells)
        self._drivers.fill(driver, at_ns, [pid for own in pids.values() for pid in own], cells)
        host_is_fresh = host is not None and is_fresh(host.at_ns, at_ns, self._max_age_ns)
        if host is not None and host_is_fresh:
            _fill_host(host, pids, cells)
            fill_pressure(host, pids, cells)
        if devices is not None:
            _fill_devices(devices, at_ns, cells)
        if memory is not None:
            self.memory = self._memory_table.make(memory, devices, self._labels)
            if not is_blind:
                fill_memory(self.memory, cells)
        _fill_deviation(cells)
        fill_engines(engines, at_ns, cells)
        stale = {
            "requests": not pulses or any(pulse.stale for pulse in pulses),
            "calls": not calls_are_fresh,
            "host": not host_is_fresh,
            "devices": devices is not None and devices.state in _EVER_SAMPLED and not devices.is_fresh,
        }
        self._last_ns = at_ns
        return _frame(at_ns, cells, frozenset(name for name, is_stale in stale.items() if is_stale))

    def _fill_requests(
        self, at_ns: int, pulses: Sequence[Pulse], cells: Cells, costs: RequestCosts, tokens: Rows | None
    ) -> None:
        """All that marks tell, and what the kernel lost of it."""
        self._served.fill(at_ns, cells, costs)
        if tokens is not None:
            fill_token_latency(tokens, self._min_samples, cells)
        self._fill_losses(pulses, at_ns, cells)
        if pulses:
            _fill_processes(pulses[-1], cells)

    def _note_processes(self, pulse: Pulse) -> None:
        rows = pulse.processes
        columns = (rows[name].tolist() for name in ("pid", "instance", "is_dead"))
        for pid, instance, is_dead in zip(*columns, strict=True):
            if is_dead:
                self._instance_of.pop(pid, None)
                continue
            name = pulse.names.instances[instance] or self._instance_of.get(pid, ("", 0))[0]
            self._instance_of[pid] = name, pulse.at_ns

    def _pids_by_instance(self, at_ns: int) -> dict[str, list[int]]:
        """Instance → its living processes; processes that served none are under the empty name."""
        self._instance_of = {
            pid: known for pid, known in self._instance_of.items() if at_ns - known[1] < _REMEMBERED_NS
        }
        pids: dict[str, list[int]] = {}
        for pid, (instance, _) in self._instance_of.items():
            pids.setdefault(instance, []).append(pid)
        return pids

    def _fill_losses(self, pulses: Sequence[Pulse], at_ns: int, cells: Cells) -> None:
        if not pulses:
            return
        lost = sum(
            count for pulse in pulses for name, count in pulse.lost.items() if name.startswith("lost_")
        )
        seconds = 1.0 if self._last_ns is None else max((at_ns - self._last_ns) / 1e9, 0.1)
        cells[HOST]["loss_rate"] = lost / seconds

    def _fill_calls(self, pids: Mapping[str, Iterable[int]], cells: Cells) -> None:
        seconds = self._calls.seconds
        if seconds <= 0:
            return
        _put_counts(cells[HOST], self._calls.of_all(), seconds)
        for instance, own in pids.items():
            if instance:
                entity = Entity(EntityKind.instance, instance=instance)
                _put_counts(cells.setdefault(entity, {}), self._calls.of_pids(own), seconds)
            for pid in own:
                entity = Entity(EntityKind.process, pid=pid)
                _put_counts(cells.setdefault(entity, {}), self._calls.of_pids([pid]), seconds)
        for (label, modality), counts in self._calls.of_stages().items():
            entity = Entity(EntityKind.stage, stage=self._labels[label], modality=modality_name(modality))
            cell = cells.setdefault(entity, {})
            cell["call_rate"] = counts.rate("calls", seconds)
            _put_launches(cell, counts, seconds)
            _put_waits(cell, counts, seconds)

    def _fill_scheduling(self, pids: Mapping[str, Iterable[int]], cells: Cells) -> None:
        rates, seconds = self.scheduling, self.scheduling.seconds
        if seconds <= 0:
            return
        faults = rates.has_page_faults
        put_scheduling(cells[HOST], rates.of_all(), seconds, has_page_faults=faults)
        for instance, own in pids.items():
            if instance:
                entity = Entity(EntityKind.instance, instance=instance)
                put_scheduling(
                    cells.setdefault(entity, {}), rates.of_pids(own), seconds, has_page_faults=faults
                )
            for pid in own:
                entity = Entity(EntityKind.process, pid=pid)
                put_scheduling(
                    cells.setdefault(entity, {}), rates.of_pids([pid]), seconds, has_page_faults=faults
                )
        stages = {code: added for code, added in rates.of_stages().items() if code[0] != NO_STAGE}
        if not stages:
            return
        waits = wait_quantiles(np.array([added.waits for added in stages.values()]), 0.95)
        for ((label, modality), added), wait_p95 in zip(stages.items(), waits, strict=True):
            entity = Entity(EntityKind.stage, stage=self._labels[label], modality=modality_name(modality))
            cell = cells.setdefault(entity, {})
            put_scheduling(cell, added.sums, seconds, has_page_faults=faults)
            cell["cpu_wait_p95_seconds"] = wait_p95


def _put_counts(cell: dict[str, float], counts: Counts, seconds: float) -> None:
    cell["call_rate"] = counts.rate("calls", seconds)
    _put_launches(cell, counts, seconds)
    cell["call_error_rate"] = counts.errors / seconds
    cell["allocation_failure_rate"] = counts.errors_oom / seconds
    cell["unattributed_ratio"] = counts.unattributed / counts.launches if counts.launches else math.nan
    _put_waits(cell, counts, seconds)


def _put_launches(cell: dict[str, float], counts: Counts, seconds: float) -> None:
    cell["launch_rate"] = counts.rate("launches", seconds)
    cell["graph_launch_rate"] = counts.rate("graph_launches", seconds)
    is_known = not counts.rate("unknown_graphs", seconds)
    cell["graph_kernel_rate"] = counts.rate("graph_kernels", seconds) if is_known else math.nan


def _put_waits(cell: dict[str, float], counts: Counts, seconds: float) -> None:
    cell["sync_wait_threads"] = counts.sync_ns / 1e9 / seconds
    cell["copy_wait_threads"] = counts.copy_ns / 1e9 / seconds
    cell["alloc_wait_threads"] = counts.alloc_ns / 1e9 / seconds


def _fill_processes(pulse: Pulse, cells: Cells) -> None:
    """What each living process holds and sits in as of the last fast tick."""
    rows = pulse.processes[~pulse.processes["is_dead"]]
    columns = (rows[name].tolist() for name in ("pid", "open_requests", "call_since_ns"))
    for pid, requests, since_ns in zip(*columns, strict=True):
        cell = cells.setdefault(Entity(EntityKind.process, pid=pid), {})
        cell["open_requests"] = requests
        if since_ns:
            cell["longest_call_seconds"] = max(0.0, (pulse.at_ns - since_ns) / 1e9)


def _fill_host(host: HostSample, pids: Mapping[str, Iterable[int]], cells: Cells) -> None:
    _put_load(cells[HOST], host.cpu_ratio, host.memory_used_ratio)
    for instance, own in pids.items():
        loads = [host.processes[pid] for pid in own if pid in host.processes]
        for load in loads:
            cell = cells.setdefault(Entity(EntityKind.process, pid=load.pid), {})
            _put_load(cell, load.cpu_load_ratio, load.memory_load_ratio)
            cell["resident_bytes"] = load.rss_bytes
        if not instance or not loads:
            continue
        cpu = sum(load.cpu_load_ratio for load in loads)
        memory = sum(load.memory_load_ratio for load in loads)
        cell = cells.setdefault(Entity(EntityKind.instance, instance=instance), {})
        _put_load(cell, cpu, memory)
        cell["resident_bytes"] = sum(load.rss_bytes for load in loads)
        for route in [entity for entity in cells if entity.kind is EntityKind.route]:
            if route.instance == instance:
                _put_load(cells[route], cpu, memory)


def _put_load(cell: dict[str, float], cpu: float, memory: float) -> None:
    cell["cpu_load_ratio"], cell["memory_load_ratio"] = cpu, memory
    cell["load_ratio"] = (cpu + memory) / 2


def _fill_deviation(cells: Cells) -> None:
    """log2(load share ÷ heat share) of each instance; unknown with one instance, or without load or heat."""
    known = {
        entity: (cell.get("load_ratio", math.nan), cell.get("endpoint_heat", math.nan))
        for entity, cell in cells.items()
        if entity.kind is EntityKind.instance
    }
    load, heat = (sum(pair[place] for pair in known.values()) for place in (0, 1))
    if len(known) < 2 or not load > 0 or not heat > 0:
        return
    for entity, (own_load, own_heat) in known.items():
        if own_load > 0 and own_heat > 0:
            cells[entity]["dispatch_deviation"] = math.log2((own_load / load) / (own_heat / heat))


def _fill_devices(devices: DeviceSample, at_ns: int, cells: Cells) -> None:
    cells[HOST]["gpu_count"] = float(len(devices.rows)) if devices.is_fresh else math.nan
    for row in devices.rows:
        entity = Entity(
            EntityKind.gpu, gpu_uuid=row["uuid"].decode(), pci_bus_id=row["pci_bus_id"].decode() or None
        )
        cell = cells.setdefault(entity, {})
        cell["gpu_sample_age_seconds"] = age_seconds(int(row["at_ns"]), at_ns)
        if not devices.is_fresh:
            continue
        used, total = float(row["memory_used_bytes"]), float(row["memory_total_bytes"])
        cell["gpu_lost"] = float(row["is_lost"] != 0)
        cell["gpu_memory_used_bytes"], cell["gpu_memory_total_bytes"] = used, total
        cell["gpu_memory_used_ratio"] = used / total if total > 0 else math.nan
        cell["gpu_utilisation_ratio"] = float(row["utilisation_ratio"])
        cell["gpu_memory_busy_ratio"] = float(row["memory_busy_ratio"])
        cell["gpu_power_watts"] = float(row["power_watts"])
        cell["gpu_temperature_celsius"] = float(row["temperature_celsius"])
        cell["gpu_sm_clock_hertz"] = float(row["sm_clock_hertz"])
        cell["gpu_hardware_slowdown"] = float(int(row["event_reasons"]) & HARDWARE_SLOWDOWN != 0)
        cell["nvml_call_seconds"] = float(row["call_seconds"])


@lru_cache(maxsize=4096)
def _order(entity: Entity) -> tuple[int, str]:
    return _ORDER[entity.kind], str(entity)


def _frame(at_ns: int, cells: Cells, stale: frozenset[str]) -> Frame:
    entities = sorted(cells, key=_order)
    values = np.full((len(entities), len(COLUMNS)), np.nan)
    for row, entity in enumerate(entities):
        places = _PLACES[entity.kind]
        for name, value in cells[entity].items():
            if name in places:
                values[row, places[name]] = value
    return Frame(at_ns, tuple(entities), values, stale)
