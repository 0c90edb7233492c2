# SPDX-License-Identifier: Apache-2.0
"""The exported metrics of first and further tokens by modality, a part of the table in `metrics.py`.

By what the marks of the server say; what an engine's own page says is `hotstage_engine_phase_…`.
"""

from __future__ import annotations

from hotstage.sinks.metric import Metric

_MODALITIES = 7
"""text, image, audio, video, mixed, unknown, and one to spare."""


def _quantile(name: str, help: str) -> Metric:
    return Metric(
        f"hotstage_{name}_seconds",
        "gauge",
        ("modality",),
        f"{help}, of the requests that ended in the last 60 s; absent below 20 of them.",
        cap=_MODALITIES,
    )


TTFT_P50 = _quantile("ttft_p50", "Median time from the begin of a request to its first token")
TTFT_P95 = _quantile("ttft_p95", "Nearest-rank p95 from the begin of a request to its first token")
ITL_P50 = _quantile("itl_p50", "Median time between tokens")
ITL_P95 = _quantile("itl_p95", "Nearest-rank p95 of the time between tokens")
TTFT_PART = Metric(
    "hotstage_ttft_part_mean_seconds",
    "gauge",
    ("modality", "part"),
    "What a stage or a wait decided of the time to first token, mean over all requests: "
    "the parts of a modality add up to its mean.",
    cap=6 * _MODALITIES,
)

TOKEN_METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
