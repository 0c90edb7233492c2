# SPDX-License-Identifier: Apache-2.0
"""Request classes → children of their metrics; the unknown has no series. Made on a scrape."""

from __future__ import annotations

from collections.abc import Iterable

from hotstage.frame.class_table import ClassRow, ClassTable
from hotstage.sinks import class_metrics as metrics
from hotstage.sinks.metric import Metric

Children = list[tuple[tuple[str, ...], float]]

ALL_SIZES = "all"
_MILLISECONDS = 1e-3

_SIZED = {
    metrics.MEAN: "mean_seconds",
    metrics.P95: "p95_seconds",
    metrics.P99: "p99_seconds",
}
_WHOLE = {
    metrics.TARGET: ("p99_target_seconds", 1.0),
    metrics.WITHIN: ("within_target_ratio", 1.0),
    metrics.TOKEN_LATENCY: ("token_equivalent_ms", _MILLISECONDS),
    metrics.PENALTY: ("slo_penalty_ms", _MILLISECONDS),
}


def class_children(table: ClassTable) -> dict[Metric, Children]:
    """Classes as a whole before their sizes, so that a cap leaves out sizes; endpoints by their penalty."""
    children: dict[Metric, Children] = {
        metrics.REQUESTS: [
            ((row.fingerprint, row.size or ALL_SIZES), float(row.requests)) for row in table.classes
        ]
    }
    for metric, field in _SIZED.items():
        children[metric] = [
            ((row.fingerprint, row.size or ALL_SIZES), value)
            for row, value in _known((*table.fingerprints, *table.classes), field)
        ]
    for metric, (field, factor) in _WHOLE.items():
        children[metric] = [
            ((row.fingerprint,), factor * value) for row, value in _known(table.fingerprints, field)
        ]
    worst = sorted(_known(table.endpoints, "slo_penalty_ms"), key=lambda each: -each[1])
    children[metrics.ENDPOINT_PENALTY] = [
        ((row.endpoint or "", row.fingerprint), _MILLISECONDS * value) for row, value in worst
    ]
    return children


def _known(rows: Iterable[ClassRow], field: str) -> list[tuple[ClassRow, float]]:
    found = ((row, getattr(row, field)) for row in rows)
    return [(row, value) for row, value in found if value is not None]
