# SPDX-License-Identifier: Apache-2.0
"""Which alert is fired by which real fault. The tests go by these tables."""

from __future__ import annotations

ONE_AFTER_THE_OTHER = {
    "HotstageStageSlow": "the image encoder takes ten times as long",
    "HotstageBreakerOpenDryRun": "the window of the slow encoder moves its breaker",
    "HotstageServerHung": "no wait for the GPU of one server returns",
    "HotstageProcessDied": "a server is killed with requests in flight",
    "HotstageGpuXid": "XID 48 in the kernel log",
    "HotstageTokenConflict": "bursts of long requests meet a GPU that is nearly full, and cut up",
    "HotstageConfigReloadFailed": "SIGHUP after an unknown section was written into the configuration",
    "HotstageAgentDown": "the agent ends",
}
"""In tests/integration/monitoring/test_faults.py."""

AT_ONCE = {
    "HotstageWebhookDisabled": "a destination answers 410",
    "HotstageWebhookDead": "a destination answers 400",
    "HotstageWebhookBacklog": "a destination answers 503, another is an address that is refused",
    "HotstageBreakerOpen": "`hotstage breakers trip`",
    "HotstageGpuXid": "XID 79 in the kernel log",
    "HotstageGpuXidContained": "XID 94 in the kernel log",
    "HotstageGpuLost": "NVML calls the GPU lost",
    "HotstageGpuSlowdown": "NVML gives thermal slowdown as the reason of the clocks",
    "HotstageBreakerOpenDryRun": "the windows of the GPU move its breaker",
    "HotstageCollectorStale": "an engine that is looked at is killed",
    "HotstageRequestErrors": "requests of an endpoint end with an error",
    "HotstageAllocationFailures": "a process asks for more device memory than there is",
    "HotstageOtlpFailing": "the collector answers 400",
    "HotstageSpansDropped": "the collector answers 400",
    "HotstageAbsent": "Prometheus loses its only target",
}
AFTER = {
    "HotstageTelemetryLost": "more requests end than the ring holds",
    "HotstageOutboxNotDrained": "the notifier is stopped",
    "HotstageStoreStuck": "the state directory's file system is full",
    "HotstageStoreLost": "it stays full for more changes than may wait",
    "HotstageSeriesDropped": "sixty breakers are tripped, more than a metric tells apart",
    "HotstageUnattributedHigh": "a process launches kernels outside of any stage",
}
"""These two in test_more_faults.py, AFTER once the others are told, which it would hide."""

BY_SCENES_ALONE = {
    "HotstageFenceStuck": "takes a DRM driver whose GPU stops answering",
    "HotstageGpuProcessKilled": "takes a GPU process that outgrows its cgroup under an agent",
}
"""No real fault fires these in a test yet: promtool judges them by their scenes."""

ON_FIVE_HOSTS = {
    "HotstageSinkErrors": ("peer", "the breaker page is deleted"),
    "HotstagePageFull": ("idle", "1,100 breakers are held"),
    "HotstageInstanceOverload": ("crowded", "a server takes the CPU and the memory that its cgroup allows"),
    "HotstageTicksLate": ("peer", "/proc/stat is an overloaded lxcfs, each read takes 0.3 s"),
    "HotstageBreakerStale": ("flooded", "more requests end than the ring holds, in each tick"),
    "HotstageDispatchDeviation": ("crowded", "a server works for more than its requests"),
    "HotstageHostSlowerThanPeers": ("slow", "its image encoder takes 120 times as long as that of two peers"),
    "HotstageNotAttached": ("idle", "its only CUDA process ends"),
    "HotstageCoverageLow": ("crowded", "a driver of which most functions begin with what must not be probed"),
    "HotstageAgentHeavy": ("idle", "1,100 breakers are held"),
}
LAST = {"HotstageNotTicking": ("peer", "/proc/stat is an lxcfs that hangs")}
"""Alert → host, fault; these two in test_self_faults.py. LAST stops what the others need."""
