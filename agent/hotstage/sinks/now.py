# SPDX-License-Identifier: Apache-2.0
"""The last tick → gauges: only what exists now has a series, and what is unknown has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from hotstage.breaker.record import BreakerRecord, BreakerState
from hotstage.devices.samples import DeviceSample
from hotstage.frame.entity import HOST, EntityKind
from hotstage.frame.frame import Frame
from hotstage.sinks import metrics, self_metrics
from hotstage.sinks.base import Tick
from hotstage.sinks.class_metrics import ENDPOINT_TOKEN_LATENCY
from hotstage.sinks.counts import COLLECTORS, window_labels
from hotstage.sinks.engines import collectors_up, engine_children
from hotstage.sinks.memory import memory_children
from hotstage.sinks.metric import Metric
from hotstage.sinks.pressure import pressure_children
from hotstage.stages.stage import modality_name
from hotstage.stages.tracker import PROBES_OFF
from hotstage.windows.window import AnomalyWindow

Children = list[tuple[tuple[str, ...], float]]

# nvml.h, nvmlClocksEventReason*
THROTTLE_REASONS = {
    "sw_power_cap": 0x04,
    "hw_slowdown": 0x08,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
}

_OF_INSTANCE = {
    metrics.INSTANCE_LOAD: "load_ratio",
    metrics.INSTANCE_CPU: "cpu_load_ratio",
    metrics.INSTANCE_MEMORY: "memory_load_ratio",
    metrics.INSTANCE_DEVIATION: "dispatch_deviation",
}
_OF_ROUTE = {
    metrics.ROUTE_HEAT: "endpoint_heat",
    metrics.ROUTE_RATE: "request_rate",
    metrics.ROUTE_P95: "latency_p95_seconds",
    metrics.ROUTE_REQUESTS: "requests_ended",
}


def gauges(tick: Tick) -> dict[Metric, Children]:
    """Every gauge that speaks of the host; the caller cuts each at its metric's cap."""
    children = {
        metrics.STAGE_INFLIGHT: _inflight(tick),
        **_windows(tick.windows.open),
        **_breakers(tick.breakers, tick.wall_offset_ns),
    }
    if tick.frame is not None:
        children |= _frame(tick.frame, tick)
    if tick.devices is not None and tick.devices.is_fresh:
        children |= _devices(tick.devices)
    if PROBES_OFF not in tick.pulse.stale:
        children |= memory_children(tick.memory)
    if tick.engines:
        children |= engine_children(tick.engines, tick.pulse.at_ns)
        children.setdefault(self_metrics.COLLECTOR_UP, []).extend(
            collectors_up(tick.engines, tick.pulse.at_ns)
        )
    return children


def _inflight(tick: Tick) -> Children:
    rows = tick.pulse.open
    open_now = Counter(
        zip(
            rows["label"].tolist(),
            rows["modality"].tolist(),
            rows["model"].tolist(),
            (tick.gpu_of_pid.get(pid, "") for pid in rows["pid"].tolist()),
            strict=True,
        )
    )
    models, stages = tick.pulse.names.models, tick.pulse.names.stages
    return [
        ((stages[label], modality_name(modality), models[model], gpu), float(count))
        for (label, modality, model, gpu), count in open_now.items()
    ]


def _windows(windows: Iterable[AnomalyWindow]) -> dict[Metric, Children]:
    active: Counter[tuple[str, str, str]] = Counter()
    score: dict[tuple[str, str, str], float] = {}
    for window in windows:
        labels = window_labels(window)
        active[labels] += 1
        score[labels] = max(window.score, score.get(labels, 0.0))
    return {
        metrics.WINDOW_ACTIVE: [(labels, float(count)) for labels, count in active.items()],
        metrics.WINDOW_SCORE: list(score.items()),
    }


def _breakers(records: Iterable[BreakerRecord], wall_offset_ns: int) -> dict[Metric, Children]:
    records = tuple(records)
    return {
        metrics.BREAKER_STATE: [
            ((each.name, state.value), float(each.shown is state))
            for each in records
            for state in BreakerState
        ],
        metrics.BREAKER_ENFORCED: [((each.name,), float(each.is_heeded)) for each in records],
        metrics.BREAKER_STALE: [((each.name,), float(each.tells_stale)) for each in records],
        metrics.BREAKER_LAST: [
            ((each.name,), (each.transitions[-1].at_ns + wall_offset_ns) / 1e9)
            for each in records
            if each.transitions
        ],
    }


def _frame(frame: Frame, tick: Tick) -> dict[Metric, Children]:
    modality = tick.endpoint_modality
    stalled = {
        (window.entity.stage, window.entity.modality)
        for window in tick.windows.open
        if window.entity.stage is not None
    }
    heat: Children = []
    latency: Children = []
    tokens: Children = []
    for entity in frame.of_kind(EntityKind.endpoint):
        labels = (entity.endpoint or "", modality.get(entity.endpoint or "", "unknown"))
        _put(heat, labels, frame.value(entity, "endpoint_heat"))
        _put(latency, labels, frame.value(entity, "latency_p95_seconds"))
        _put(tokens, labels, frame.value(entity, "token_equivalent_latency_seconds"))
    states: Children = []
    for entity in frame.of_kind(EntityKind.stage):
        name = (entity.stage or "", entity.modality or "")
        is_active = (frame.value(entity, "inflight") or 0) > 0
        now = "stalled" if (entity.stage, entity.modality) in stalled else "active" if is_active else "idle"
        states += [((*name, state), float(state == now)) for state in ("idle", "active", "stalled")]
    unattributed: Children = []
    _put(unattributed, (), frame.value(HOST, "unattributed_ratio"))
    return {
        metrics.ENDPOINT_HEAT: heat,
        metrics.ENDPOINT_P95: latency,
        ENDPOINT_TOKEN_LATENCY: tokens,
        **_instances(frame),
        **pressure_children(frame),
        **_routes(frame, modality),
        metrics.STAGE_STATE: states,
        metrics.UNATTRIBUTED: unattributed,
        self_metrics.COLLECTOR_UP: [((name,), float(name not in frame.stale)) for name in COLLECTORS],
    }


def _instances(frame: Frame) -> dict[Metric, Children]:
    children: dict[Metric, Children] = {metric: [] for metric in _OF_INSTANCE}
    for entity in frame.of_kind(EntityKind.instance):
        for metric, column in _OF_INSTANCE.items():
            _put(children[metric], (entity.instance or "",), frame.value(entity, column))
    return children


def _routes(frame: Frame, endpoint_modality: Mapping[str, str]) -> dict[Metric, Children]:
    """The numbers of `/v1/heat`, hottest first: what the cap leaves out is the coolest."""
    children: dict[Metric, Children] = {metric: [] for metric in _OF_ROUTE}
    routes = sorted(
        frame.of_kind(EntityKind.route),
        key=lambda route: frame.value(route, "endpoint_heat") or 0.0,
        reverse=True,
    )
    for route in routes:
        endpoint = route.endpoint or ""
        labels = (endpoint, route.instance or "", endpoint_modality.get(endpoint, "unknown"))
        for metric, column in _OF_ROUTE.items():
            _put(children[metric], labels, frame.value(route, column))
    return children


def _devices(devices: DeviceSample) -> dict[Metric, Children]:
    rows = devices.rows
    info: Children = []
    throttle: Children = []
    for row in rows:
        uuid = _text(row["uuid"])
        labels = (uuid, str(int(row["index"])), _text(row["name"]), _text(row["pci_bus_id"]), devices.driver)
        info.append((labels, 1.0))
        reasons = int(np.uint64(row["event_reasons"]))
        throttle += [((uuid, name), float(bool(reasons & bit))) for name, bit in THROTTLE_REASONS.items()]
    return {metrics.GPU_INFO: info, metrics.GPU_THROTTLE: throttle}


def _put(children: Children, labels: tuple[str, ...], value: float | None) -> None:
    if value is not None:
        children.append((labels, value))


def _text(raw: bytes) -> str:
    return raw.decode("ascii", "replace")
