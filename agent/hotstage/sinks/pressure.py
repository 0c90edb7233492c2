# SPDX-License-Identifier: Apache-2.0
"""The last frame → gauges of pressure, throttling and memory: only what is known has a series."""

from __future__ import annotations

from hotstage.frame.entity import HOST, EntityKind
from hotstage.frame.frame import Frame
from hotstage.sinks import pressure_metrics as metrics
from hotstage.sinks.metric import Metric

_Children = list[tuple[tuple[str, ...], float]]

_RESOURCES = ("cpu", "memory", "io")
_OF_HOST: dict[tuple[str, ...], str] = {
    (resource, tasks): f"{resource}_{which}"
    for resource in _RESOURCES
    for tasks, which in (("some", "stall_ratio"), ("full", "full_stall_ratio"))
}
_OF_INSTANCE: dict[Metric, dict[tuple[str, ...], str]] = {
    metrics.INSTANCE_STALL: {(resource,): f"{resource}_stall_ratio" for resource in _RESOURCES},
    metrics.INSTANCE_THROTTLED: {(): "cpu_throttled_ratio"},
    metrics.INSTANCE_MEMORY_EVENTS: {
        ("high",): "memory_high_events",
        ("max",): "memory_max_events",
        ("oom",): "oom_events",
        ("oom_kill",): "oom_kill_events",
    },
    metrics.INSTANCE_FAULTS: {("minor",): "minor_fault_rate", ("major",): "major_fault_rate"},
}


def pressure_children(frame: Frame) -> dict[Metric, _Children]:
    """Every gauge of this part; the caller cuts each at its metric's cap."""
    children: dict[Metric, _Children] = {metrics.HOST_STALL: []}
    for labels, column in _OF_HOST.items():
        _put(children[metrics.HOST_STALL], labels, frame.value(HOST, column))
    for metric, columns in _OF_INSTANCE.items():
        children[metric] = []
        for entity in frame.of_kind(EntityKind.instance):
            for labels, column in columns.items():
                _put(children[metric], (entity.instance or "", *labels), frame.value(entity, column))
    return children


def _put(children: _Children, labels: tuple[str, ...], value: float | None) -> None:
    if value is not None:
        children.append((labels, value))
