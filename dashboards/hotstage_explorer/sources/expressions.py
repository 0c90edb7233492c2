# SPDX-License-Identifier: Apache-2.0
"""Every PromQL expression that the pages ask for, and the metrics that they read with their own labels.

Labels that a metric has beside its own come from the scrape: they tell one host from another. No I/O.
"""

from __future__ import annotations

GAUGES: dict[str, frozenset[str]] = {
    name: frozenset(labels.split())
    for name, labels in {
        "hotstage_endpoint_instance_heat": "endpoint instance_id modality",
        "hotstage_endpoint_instance_request_rate": "endpoint instance_id modality",
        "hotstage_endpoint_instance_latency_p95_seconds": "endpoint instance_id modality",
        "hotstage_endpoint_instance_requests": "endpoint instance_id modality",
        "hotstage_instance_load_ratio": "instance_id",
        "hotstage_instance_cpu_load_ratio": "instance_id",
        "hotstage_instance_memory_load_ratio": "instance_id",
        "hotstage_instance_dispatch_deviation": "instance_id",
        "hotstage_stage_inflight": "stage modality model_name gpu_uuid",
        "hotstage_stage_state": "stage modality state",
        "hotstage_stage_duration_seconds_count": "stage modality model_name gpu_uuid",
        "hotstage_window_active": "kind severity stage",
        "hotstage_breaker_state": "breaker state",
        "hotstage_breaker_enforced": "breaker",
        "hotstage_breaker_stale": "breaker",
        "hotstage_breaker_last_transition_timestamp_seconds": "breaker",
        "hotstage_unattributed_ratio": "",
        "hotstage_build_info": "version loader rung",
        "hotstage_coverage_attached_symbols": "",
        "hotstage_coverage_missed_symbols": "",
    }.items()
}
"""Metric → the labels that it has of its own. They are read as they are, at one moment."""

CLASSES: dict[str, frozenset[str]] = {
    name: frozenset(labels.split())
    for name, labels in {
        "hotstage_request_class_requests_total": "request_class size",
        "hotstage_request_class_latency_mean_seconds": "request_class size",
        "hotstage_request_class_latency_p95_seconds": "request_class size",
        "hotstage_request_class_latency_p99_seconds": "request_class size",
        "hotstage_request_class_p99_target_seconds": "request_class",
        "hotstage_request_class_within_target_ratio": "request_class",
        "hotstage_request_class_token_equivalent_latency_seconds": "request_class",
        "hotstage_request_class_slo_penalty_seconds": "request_class",
        "hotstage_endpoint_slo_penalty_seconds": "endpoint request_class",
    }.items()
}
"""As `GAUGES`, of the page Classes."""

TOKENS: dict[str, frozenset[str]] = {
    "hotstage_ttft_p50_seconds": frozenset({"modality"}),
    "hotstage_ttft_p95_seconds": frozenset({"modality"}),
    "hotstage_itl_p50_seconds": frozenset({"modality"}),
    "hotstage_itl_p95_seconds": frozenset({"modality"}),
    "hotstage_ttft_part_mean_seconds": frozenset({"modality", "part"}),
}
"""As `GAUGES`, of first and further tokens."""

STAGE_DURATION = "hotstage_stage_duration_seconds"
TICKS = "hotstage_ticks_total"
UP = "hotstage_up"

MARK = "hotstage_sample"
"""A label of ours that tells the parts of one answer apart: PromQL's `or` ignores metric names."""

QUANTILES = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
MIN_SAMPLES = 20
LOOK_BACK = "5m"
WINDOWS_BACK = "15m"


class Expressions:
    """All expressions under one selector (`selector.matchers`), "" for every series.

    `search` makes the matchers others than those of any search before, and matches all the same.
    """

    def __init__(self, selector: str, search: str = "") -> None:
        matchers = [selector] if selector else []
        if search:
            matchers.append(f'{MARK}!="{search}"')
        self._also = "".join(f",{each}" for each in matchers)
        self._only = f"{{{','.join(matchers)}}}"

    def pulse(self, settle_seconds: int = 0) -> str:
        """When each host was scraped last, as of so long ago; a host whose scrape failed is missing.

        Values are unix seconds.
        """
        offset = f" offset {settle_seconds}s" if settle_seconds else ""
        return f"timestamp({UP}{self._only}{offset})"

    @property
    def ticks(self) -> str:
        """Raw samples of the ticks done: when they came, and whether the agent moves at all."""
        return f'{TICKS}{{tick="fast"{self._also}}}[{LOOK_BACK}]'

    @property
    def now(self) -> str:
        """Every gauge, when it was scraped, and whether its target can be scraped: one answer, one moment."""
        names = "|".join(GAUGES)
        gauges = f'{{__name__=~"{names}"{self._also}}}'
        scraped = f"up{self._only} and on (job, instance) max_over_time({UP}{self._only}[1h])"
        return f"{gauges} or {_marked(self.pulse(), 'time')} or {_marked(scraped, 'up')}"

    def stages(self, seconds: int) -> str:
        """Quantiles (from 20 ended stages on) and rate of each stage × modality, over so many seconds."""
        counts = f"sum without (model_name, gpu_uuid) (increase({self._stage('count', seconds)}))"
        buckets = f"sum without (model_name, gpu_uuid) (rate({self._stage('bucket', seconds)}))"
        parts = [_marked(f"{counts} / {seconds}", "rate")]
        parts += [
            _marked(f"histogram_quantile({q}, {buckets}) and {counts} >= {MIN_SAMPLES}", name)
            for q, name in QUANTILES
        ]
        return " or ".join(parts)

    def classes(self, seconds: int) -> str:
        """All that metrics say of request classes, and their rates over so many seconds."""
        metrics = f'{{__name__=~"{"|".join(CLASSES)}"{self._also}}}'
        ended = f"hotstage_request_class_requests_total{self._only}[{seconds}s]"
        return f"{metrics} or {_marked(f'rate({ended})', 'rate')}"

    @property
    def tokens(self) -> str:
        """All that metrics say of first and further tokens."""
        return f'{{__name__=~"{"|".join(TOKENS)}"{self._also}}}'

    @property
    def windows(self) -> str:
        """Raw samples of how many windows of a kind are open; where there is no sample, none is."""
        return f"hotstage_window_active{self._only}[{WINDOWS_BACK}]"

    def _stage(self, suffix: str, seconds: int) -> str:
        return f"{STAGE_DURATION}_{suffix}{self._only}[{seconds}s]"


def _marked(expression: str, mark: str) -> str:
    return f'label_replace({expression}, "{MARK}", "{mark}", "", "")'
