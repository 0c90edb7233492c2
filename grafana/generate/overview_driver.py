# SPDX-License-Identifier: Apache-2.0
"""The overview's row on what tracepoints of GPU drivers tell. Collapsed: NVIDIA's driver has few of them."""

from __future__ import annotations

from generate.board import Row
from generate.panels import Panel, Target
from generate.promql import DASHBOARD, highest, total
from hotstage.sinks import driver_metrics as metrics

DRM = "a DRM driver"
IOCTLS = "[probes] gpu_ioctls"
_SIGNALED = total(DASHBOARD.rate(metrics.FENCES), "driver", "timeline")

DRIVER = Row(
    "GPU drivers",
    (
        Panel(
            "Work handed to GPUs",
            "Per second, by what tells it: the driver's own event, or launch calls where the driver has none "
            "(NVIDIA submits from user space).",
            "timeseries",
            "ops",
            (Target(total(DASHBOARD.rate(metrics.QUEUE_SUBMITS), "source"), "{{source}}"),),
        ),
        Panel(
            "Fences: emitted to signaled",
            "Mean time from the moment at which a driver handed work over to the moment at which the GPU had "
            "done it, by timeline. amdgpu, nouveau, radeon and virtio emit fences; NVIDIA's driver does not.",
            "timeseries",
            "s",
            (
                Target(
                    f"{total(DASHBOARD.rate(metrics.FENCE_SECONDS), 'driver', 'timeline')} / {_SIGNALED}",
                    "{{driver}} {{timeline}}",
                ),
            ),
            needs=DRM,
        ),
        Panel(
            "Fences that are open",
            "Work that a GPU has and has not finished, and the age of the oldest in seconds. Old and not "
            "going down: that GPU hangs.",
            "timeseries",
            "short",
            (
                Target(
                    total(DASHBOARD.select(metrics.FENCES_OPEN), "driver", "timeline"),
                    "{{driver}} {{timeline}}",
                ),
                Target(highest(DASHBOARD.select(metrics.FENCE_OLDEST), "instance"), "oldest on {{instance}}"),
            ),
            needs=DRM,
        ),
        Panel(
            "Waits for fences",
            "Threads that waited in the kernel for a GPU, on average.",
            "timeseries",
            "short",
            (Target(total(DASHBOARD.rate(metrics.FENCE_WAITS), "instance"), "{{instance}}"),),
        ),
        Panel(
            "Memory of GPUs as their drivers tell it",
            "By gpu_mem_total, which few drivers have; what processes allocated is in the row GPU memory.",
            "timeseries",
            "bytes",
            (
                Target(
                    highest(DASHBOARD.select(metrics.MEMORY), "instance", "gpu"), "{{gpu}} of {{instance}}"
                ),
            ),
            needs=DRM,
        ),
        Panel(
            "Jobs by ring",
            "Per second, where the driver's event names the ring.",
            "timeseries",
            "ops",
            (Target(total(DASHBOARD.rate(metrics.RING_JOBS), "ring"), "{{ring}}"),),
            needs=DRM,
        ),
        Panel(
            "Ioctls of GPU devices",
            "Per second by class, and those as long as a slow call. Only with `[probes] gpu_ioctls`: "
            "it taxes every system call of the host.",
            "timeseries",
            "ops",
            (
                Target(
                    total(DASHBOARD.rate(metrics.IOCTLS), "device", "ioctl_class"),
                    "{{device}} {{ioctl_class}}",
                ),
                Target(total(DASHBOARD.rate(metrics.IOCTLS_SLOW), "instance"), "slow ones on {{instance}}"),
            ),
            needs=IOCTLS,
        ),
        Panel(
            "Mean time of an ioctl",
            "By class. `wait` is meant to be long; others that grow: the driver waits for its device.",
            "timeseries",
            "s",
            (
                Target(
                    f"{total(DASHBOARD.rate(metrics.IOCTL_SECONDS), 'device', 'ioctl_class')} / "
                    f"{total(DASHBOARD.rate(metrics.IOCTLS), 'device', 'ioctl_class')}",
                    "{{device}} {{ioctl_class}}",
                ),
            ),
            needs=IOCTLS,
        ),
        Panel(
            "Killed for memory",
            "Processes that the kernel killed for want of memory, per second; `gpu` used a GPU.",
            "timeseries",
            "ops",
            (
                Target(
                    total(DASHBOARD.rate(metrics.OOM_KILLS), "process", "instance"),
                    "{{process}} on {{instance}}",
                ),
            ),
        ),
        Panel(
            "Tracepoints that fire",
            "Per second. `hotstage coverage --all` says which are absent on a host, and why.",
            "timeseries",
            "ops",
            (Target(total(DASHBOARD.rate(metrics.EVENTS), "event"), "{{event}}"),),
        ),
    ),
    collapsed=True,
)
