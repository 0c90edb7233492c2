# SPDX-License-Identifier: Apache-2.0
"""Which alert is fired by which real fault, and which are not, and why. The tests go by these tables."""

from __future__ import annotations

ONE_AFTER_THE_OTHER = {
    "HotstageStageSlow": "the image encoder takes ten times as long",
    "HotstageBreakerOpenDryRun": "the window of the slow encoder moves its breaker",
    "HotstageServerHung": "no wait for the GPU of one server returns",
    "HotstageProcessDied": "a server is killed with requests in flight",
    "HotstageGpuXid": "XID 48 in the kernel log",
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

LEFT_TO_PROMTOOL = {
    "HotstageHostSlowerThanPeers": "needs three hosts with an agent each; a test has one kernel",
    "HotstageInstanceOverload": "CPU and memory at the limit for 20 s would slow all else on two cores",
    "HotstageDispatchDeviation": "fires beside other faults that load one instance; none is its own",
    "HotstageNotTicking": "an agent that answers and has not ticked is a defect of ours; none is known",
    "HotstageNotAttached": "a minute in which no process of CUDA lives: every other fault needs one",
    "HotstageCoverageLow": "a minute with libraries newer than the catalogue; test_engine.py sees the counts",
    "HotstageTicksLate": "starving the agent for 20 s would spoil what else is measured",
    "HotstageAgentHeavy": "half a core or 512 MiB for 40 s: an agent that does so is a defect of ours",
    "HotstageBreakerStale": "losses make a breaker stale for moments, and it takes 20 s without a break",
    "HotstagePageFull": "the page has more places than breakers are held, unless max_breakers is raised far",
    "HotstageSinkErrors": "an output that fails in a way nobody foresaw is a defect of ours; none is known",
}
