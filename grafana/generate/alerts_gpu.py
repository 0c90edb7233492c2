# SPDX-License-Identifier: Apache-2.0
"""Alerts on what the driver says of its GPUs: XIDs by number, loss, slowdown, work that does not end."""

from __future__ import annotations

from generate.alert import Alert, Fires, Input, Scene, given
from generate.overview import UID as OVERVIEW
from generate.promql import RULE, total
from hotstage.sinks import driver_metrics, memory_metrics, metrics

_GPU = "GPU-1"
_BROKEN = 'xid=~"48|62|64|74|79|95|119|120"'
_CONTAINED = 'xid="94"'
_CONFLICTS = total(
    RULE.increase(memory_metrics.CONFLICTS, 'outcome=~"told|lost"', range="5m"), "job", "instance"
)
_KILLED = RULE.increase(driver_metrics.OOM_KILLS, 'process="gpu"', range="10m")
_SLOWED = RULE.select(metrics.GPU_THROTTLE, 'reason=~"hw_.+"')


# One window where both tell of it, of the XID. Those that are over by themselves are so before it fires.
_OUT = (
    total(
        RULE.select(metrics.WINDOW_ACTIVE, 'kind=~"gpu_lost|gpu_xid"', 'severity="critical"'),
        "job",
        "instance",
    )
    + " > 0"
)


def _recent(matcher: str) -> str:
    """By the age of the last one: `increase` misses the first of a series, which is mostly the only one."""
    return f"time() - {RULE.select(metrics.GPU_XID_LAST, matcher)} < 600"


def _last(values: str, xid: str) -> Input:
    return given("hotstage_gpu_xid_last_timestamp_seconds", values, gpu_uuid=_GPU, xid=xid)


def _slowdown(values: str, reason: str) -> Input:
    return given("hotstage_gpu_throttle_active", values, gpu_uuid=_GPU, reason=reason)


def _oldest_fence(values: str) -> Input:
    return given("hotstage_driver_fence_oldest_open_seconds", values)


def _killed(values: str, process: str) -> Input:
    return given("hotstage_driver_oom_kills_total", values, process=process)


def _out(values: str, kind: str, severity: str = "critical") -> Input:
    return given("hotstage_window_active", values, kind=kind, severity=severity, stage="")


def _conflict(values: str, outcome: str) -> Input:
    return given("hotstage_memory_conflict_allocations_total", values, outcome=outcome)


GPU = (
    Alert(
        "HotstageGpuXid",
        _recent(_BROKEN),
        "30s",
        "critical",
        "XID {{ $labels.xid }} on GPU {{ $labels.gpu_uuid }} of {{ $labels.instance }}",
        "The driver reported {{ $value | humanizeDuration }} ago that the GPU or its link is broken. Drain "
        "the host: most of these need a reset of the GPU or a reboot.",
        OVERVIEW,
        Fires((_last("_x4 60x20", "79"),), "2m", {"gpu_uuid": _GPU, "xid": "79"}, "1m 0s"),
        Scene((_last("60x60", "79"), _last("_x40 600x20", "13")), "12m"),
    ),
    Alert(
        "HotstageGpuXidContained",
        _recent(_CONTAINED),
        "30s",
        "warning",
        "Contained ECC error (XID 94) on GPU {{ $labels.gpu_uuid }} of {{ $labels.instance }}",
        "One application was stopped, others go on. Restart that server; replace the GPU if it comes again.",
        OVERVIEW,
        Fires((_last("60x20", "94"),), "2m", {"gpu_uuid": _GPU, "xid": "94"}),
        Scene((_last("60x60", "94"), _last("600x60", "79")), "12m"),
    ),
    Alert(
        "HotstageGpuLost",
        _OUT,
        "30s",
        "critical",
        "A GPU of {{ $labels.instance }} is lost, or broken since an XID",
        "NVML says that it is lost, or nothing has shown it back since the driver reported an XID that needs "
        "a reset or a reboot. Drain the host; `hotstage windows` names GPU and XID.",
        OVERVIEW,
        Fires((_out("1 1 0x20", "gpu_lost"), _out("0 0 1x20", "gpu_xid")), "1m", {}),
        Scene(
            (_out("0x20", "gpu_lost"), _out("0 1 0x20", "gpu_xid"), _out("1x20", "gpu_xid", "warning")), "1m"
        ),
    ),
    Alert(
        "HotstageGpuSlowdown",
        f"{_SLOWED} > 0",
        "5m",
        "warning",
        "GPU {{ $labels.gpu_uuid }} of {{ $labels.instance }} slows itself down: {{ $labels.reason }}",
        "A hardware slowdown, not the power cap: check cooling, power supply and cabling.",
        OVERVIEW,
        Fires((_slowdown("1x40", "hw_thermal"),), "6m", {"gpu_uuid": _GPU, "reason": "hw_thermal"}),
        Scene((_slowdown("1x40", "sw_power_cap"), _slowdown("0x40", "hw_thermal")), "6m"),
    ),
    Alert(
        "HotstageTokenConflict",
        f"{_CONFLICTS} > 0",
        "30s",
        "warning",
        "Visual and text tokens compete for the memory of a GPU of {{ $labels.instance }}",
        "In the last 5 minutes large allocations were made while the tokens in flight needed more memory "
        "than was left. Lower the batch, or shed images first.",
        OVERVIEW,
        Fires((_conflict("0x8 3x20", "told"), _conflict("0x8 90x20", "held_back")), "4m", {}),
        Scene((_conflict("2x60", "told"), _conflict("0+5x60", "fits"), _conflict("0+5x60", "unknown")), "8m"),
    ),
    Alert(
        "HotstageFenceStuck",
        f"{RULE.select(driver_metrics.FENCE_OLDEST)} > 10",
        "30s",
        "warning",
        "A GPU of {{ $labels.instance }} has not finished its work for {{ $value | humanizeDuration }}",
        "Its driver handed work over, and the fence of it does not signal. Servers that wait for it hang. "
        "`hotstage coverage --all` names the timeline; the kernel log says whether the driver resets it.",
        OVERVIEW,
        Fires((_oldest_fence("_x4 12+15x20"),), "2m", {}, "1m 12s"),
        Scene((_oldest_fence("4 9 3 8 2 _ _ 9 4 6 8 9 1 2"),), "3m"),
    ),
    Alert(
        "HotstageGpuProcessKilled",
        f"{_KILLED} > 0",
        "30s",
        "warning",
        "The kernel killed a process of {{ $labels.instance }} that used a GPU, for want of memory",
        "The host's memory, or what its cgroup may have. `hotstage coverage --all` names it; raise the "
        "limit, or lower what it caches on the host.",
        OVERVIEW,
        Fires((_killed("0x4 1x20", "gpu"),), "3m", {"process": "gpu"}),
        Scene((_killed("0x4 5x20", "other"), _killed("0x40", "gpu")), "3m"),
    ),
)
