# SPDX-License-Identifier: Apache-2.0
"""Alerts on what is served: slow stages, hung and dead servers, failing requests, load, breakers."""

from __future__ import annotations

from generate.alert import Alert, Fires, Input, Scene, given
from generate.overview import UID as OVERVIEW
from generate.promql import RULE, total
from generate.recording import ERRORS, HOST_P95, OVER_PEERS
from generate.stages import UID as STAGES
from hotstage.sinks import metrics

_ROUTE = ("job", "instance", "endpoint", "modality")
_ON_ROUTE = f"and on ({', '.join(_ROUTE)})"
_OPEN = RULE.select(metrics.BREAKER_STATE, 'state=~"open|forced_open"')
_HEEDED = f"and on (job, instance, breaker) {RULE.select(metrics.BREAKER_ENFORCED)}"
_LAUNCHES = total(
    RULE.rate(metrics.CALLS, 'call=~"cuLaunch.*|cuGraphLaunch.*|cudaLaunch.*"'), "job", "instance"
)


def window_open(kind: str, *by: str) -> str:
    """Windows of a kind that are open now."""
    active = RULE.select(metrics.WINDOW_ACTIVE, f'kind="{kind}"')
    return f"{total(active, 'job', 'instance', *by)} > 0"


def window_opened(kind: str) -> str:
    """Windows of a kind that opened in the last ten minutes: they may be shorter than a scrape interval.

    `increase` would miss the first one, which is the one that counts.
    """
    counter = RULE.select(metrics.WINDOW_ANOMALIES, f'kind="{kind}"')
    now, before = (total(each, "job", "instance") for each in (counter, f"{counter} offset 10m"))
    return f"({now} - {before}) > 0 or ({now} unless {before})"


def _active(values: str, kind: str, stage: str = "", severity: str = "critical") -> Input:
    return given("hotstage_window_active", values, kind=kind, severity=severity, stage=stage)


def _opened(values: str, kind: str) -> Input:
    return given("hotstage_window_anomalies_total", values, kind=kind, severity="critical", stage="")


def _requests(values: str, outcome: str, endpoint: str = "/v1/vision") -> Input:
    return given(
        "hotstage_endpoint_requests_total",
        values,
        endpoint=endpoint,
        modality="image",
        model_name="m",
        outcome=outcome,
    )


def _durations(host: str, up_to_1s: int, up_to_4s: int, all_of_them: int) -> tuple[Input, ...]:
    """Buckets of one host's requests, so many per scrape."""
    counts = {"1.0": up_to_1s, "4.0": up_to_4s, "+Inf": all_of_them}
    labels = {"endpoint": "/v1/vision", "modality": "image", "model_name": "m"}
    return tuple(
        given("hotstage_endpoint_request_duration_seconds_bucket", f"0+{n}x120", host, le=edge, **labels)
        for edge, n in counts.items()
    )


def _breaker(state: str, enforced: int) -> tuple[Input, ...]:
    """One breaker in that state for ten minutes."""
    name = "stage:vision_encode:image"
    states = tuple(
        given("hotstage_breaker_state", f"{int(each == state)}x40", breaker=name, state=each)
        for each in ("closed", "open", "half_open", "forced_open", "disabled", "metrics_only")
    )
    return (*states, given("hotstage_breaker_enforced", f"{enforced}x40", breaker=name))


SERVING = (
    Alert(
        "HotstageStageSlow",
        window_open("stage_latency", "stage"),
        "1m",
        "critical",
        "{{ $labels.stage }} is slow on {{ $labels.instance }}",
        "The stage takes a multiple of its usual time per unit of work, and requests wait for it. "
        "`hotstage windows` names the cause, the dashboard the modality. Shed or move that modality.",
        STAGES,
        Fires((_active("1x20", "stage_latency", "vision_encode"),), "2m", {"stage": "vision_encode"}),
        Scene(
            (
                _active("1x2 stale", "stage_latency", "vision_encode"),
                _active("1x20", "telemetry_lost", severity="info"),
            ),
            "2m",
        ),
    ),
    Alert(
        "HotstageServerHung",
        window_open("alive_but_hung"),
        "30s",
        "critical",
        "A server on {{ $labels.instance }} is alive but hung",
        "Requests are in flight and nothing moves on the device, while its health check answers. "
        "`hotstage snapshot` shows the call it sits in. Take the instance out of rotation, then restart it.",
        OVERVIEW,
        Fires((_active("1x20", "alive_but_hung"),), "1m", {}),
        Scene((_active("1x20", "stage_latency", "llm_decode"),), "1m"),
    ),
    Alert(
        "HotstageProcessDied",
        window_opened("process_death"),
        "30s",
        "critical",
        "A server on {{ $labels.instance }} died with requests in flight",
        "Its requests are lost. `hotstage windows` names the process and how many; look for an OOM kill or "
        "an XID at that time before it is started again.",
        OVERVIEW,
        Fires((_opened("_x40 1x20", "process_death"),), "11m", {}),
        Scene((_opened("1x120", "process_death"), _opened("_x40 1x80", "stage_latency")), "25m"),
    ),
    Alert(
        "HotstageAllocationFailures",
        window_opened("allocation_failures"),
        "30s",
        "warning",
        "A server on {{ $labels.instance }} is refused device memory",
        "Allocations return out of memory; requests fail or are retried at lower batch sizes. "
        "`hotstage windows` names the process; lower its batch or its cache, or look for a leak.",
        OVERVIEW,
        Fires((_opened("1x40 2x20", "allocation_failures"),), "11m", {}),
        Scene((_opened("2x120", "allocation_failures"),), "25m"),
    ),
    Alert(
        "HotstageRequestErrors",
        f"{ERRORS.name} > 0.05 {_ON_ROUTE} {total(RULE.rate(metrics.ENDPOINT_REQUESTS), *_ROUTE)} > 0.2",
        "2m",
        "critical",
        "{{ $value | humanizePercentage }} of the requests to {{ $labels.endpoint }} on {{ $labels.instance "
        "}} fail",
        "They end with an error or with their process. The agent's `/v1/requests` shows after which stage.",
        OVERVIEW,
        Fires(
            (_requests("0+9x60", "ok"), _requests("0+1x60", "error")),
            "10m",
            {"endpoint": "/v1/vision", "modality": "image"},
            "10%",
        ),
        Scene(
            (
                _requests("0+99x60", "ok"),
                _requests("0+1x60", "error"),
                _requests("0x20 1x40", "error", "/v1/nearly-idle"),
            ),
            "10m",
        ),
    ),
    Alert(
        "HotstageHostSlowerThanPeers",
        f"{OVER_PEERS.name} > 3 {_ON_ROUTE} {HOST_P95.name} > 0.5 "
        f"and on (job, endpoint, modality) count by (job, endpoint, modality) ({HOST_P95.name}) >= 3",
        "10m",
        "warning",
        "{{ $labels.endpoint }} is {{ $value | humanize }} times as slow on {{ $labels.instance }} as on "
        "its peers",
        "At least three hosts serve the endpoint, and this one's P95 is out of line. Compare its stages, "
        "clocks and load with a peer's.",
        OVERVIEW,
        Fires(
            (*_durations("a:9178", 0, 0, 9), *_durations("b:9178", 9, 9, 9), *_durations("c:9178", 9, 9, 9)),
            "25m",
            {"instance": "a:9178", "endpoint": "/v1/vision", "modality": "image"},
            "4.211",  # beyond the last edge: 4 s, over 0.95 s
        ),
        Scene(tuple(each for host in "abc" for each in _durations(f"{host}:9178", 0, 0, 9)), "25m"),
    ),
    Alert(
        "HotstageInstanceOverload",
        f"{RULE.select(metrics.INSTANCE_LOAD)} > 0.85",
        "5m",
        "warning",
        "{{ $labels.instance_id }} on {{ $labels.instance }} is loaded to {{ $value | humanizePercentage }}",
        "CPU or memory: pre-processing and launches will starve. Move traffic, raise its limits, or degrade "
        "what is not core.",
        OVERVIEW,
        Fires(
            (given("hotstage_instance_load_ratio", "0.9x40", instance_id="i-0"),),
            "6m",
            {"instance_id": "i-0"},
            "90%",
        ),
        Scene((given("hotstage_instance_load_ratio", "0.9x8 0.5x40", instance_id="i-0"),), "6m"),
    ),
    Alert(
        "HotstageDispatchDeviation",
        f"abs({RULE.select(metrics.INSTANCE_DEVIATION)}) > 1 "
        f"and on (job, instance) {total(RULE.select(metrics.ENDPOINT_HEAT), 'job', 'instance')} > 1",
        "10m",
        "warning",
        "{{ $labels.instance_id }} on {{ $labels.instance }} is not loaded as its traffic says",
        "Its share of the load is at least twice or half its share of the heat. Look for expensive requests "
        "that one instance gets, or for work that no request explains.",
        OVERVIEW,
        Fires(
            (
                given("hotstage_instance_dispatch_deviation", "1.4x60", instance_id="i-0"),
                given("hotstage_endpoint_heat", "5x60", endpoint="/v1/vision", modality="image"),
            ),
            "12m",
            {"instance_id": "i-0"},
        ),
        Scene(
            (
                given("hotstage_instance_dispatch_deviation", "-3x60", instance_id="i-1"),
                given("hotstage_endpoint_heat", "0.2x60", endpoint="/v1/vision", modality="image"),
            ),
            "12m",
        ),
    ),
    Alert(
        "HotstageBreakerOpen",
        f"{_OPEN} == 1 {_HEEDED} == 1",
        "30s",
        "critical",
        "Callers of {{ $labels.instance }} shed traffic: {{ $labels.breaker }} is open",
        "Callers heed it: it is enforced, or a person tripped it, which counts in dry run, too. "
        "`hotstage breakers` shows why and by whom; `hotstage breakers disable` overrules it for a while.",
        OVERVIEW,
        Fires(
            _breaker("forced_open", 1), "1m", {"breaker": "stage:vision_encode:image", "state": "forced_open"}
        ),
        Scene(_breaker("open", 0), "1m"),
    ),
    Alert(
        "HotstageBreakerOpenDryRun",
        f"{_OPEN} == 1 {_HEEDED} == 0",
        "30s",
        "warning",
        "{{ $labels.breaker }} of {{ $labels.instance }} would shed traffic, were it enforced",
        "A dry run: nobody is turned away. Compare with what users saw, then decide whether to enforce it.",
        OVERVIEW,
        Fires(_breaker("open", 0), "1m", {"breaker": "stage:vision_encode:image", "state": "open"}),
        Scene(_breaker("forced_open", 1), "1m"),
    ),
    Alert(
        "HotstageUnattributedHigh",
        f"{RULE.select(metrics.UNATTRIBUTED)} > 0.5 and on (job, instance) {_LAUNCHES} > 10",
        "10m",
        "warning",
        "{{ $value | humanizePercentage }} of the launches on {{ $labels.instance }} have no stage",
        "Figures by stage leave them out. `hotstage coverage` shows which process has no marks; put them "
        "into that server.",
        STAGES,
        Fires(
            (
                given("hotstage_unattributed_ratio", "0.75x80"),
                given(
                    "hotstage_calls_total",
                    "0+600x80",
                    call="cuLaunchKernel",
                    stage="none",
                    modality="unknown",
                ),
            ),
            "16m",
            {},
            "75%",
        ),
        Scene(
            (
                given("hotstage_unattributed_ratio", "1x80"),
                given(
                    "hotstage_calls_total", "0+3x80", call="cuLaunchKernel", stage="none", modality="unknown"
                ),
            ),
            "16m",
        ),
    ),
)
