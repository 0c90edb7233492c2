# SPDX-License-Identifier: Apache-2.0
"""Request classes from the agents' metrics. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from hotstage_explorer import parse
from hotstage_explorer.documents.classes import Classes, ClassRow
from hotstage_explorer.sources.expressions import MARK
from hotstage_explorer.sources.promql import Series
from hotstage_explorer.sources.series import Identity, host_names, identity

RATE_SECONDS = 60
ALL_SIZES = "all"
"""The label of a fingerprint as a whole."""

_FIELDS = {
    "hotstage_request_class_requests_total": "requests",
    "hotstage_request_class_latency_mean_seconds": "mean_seconds",
    "hotstage_request_class_latency_p95_seconds": "p95_seconds",
    "hotstage_request_class_latency_p99_seconds": "p99_seconds",
    "hotstage_request_class_p99_target_seconds": "p99_target_seconds",
    "hotstage_request_class_within_target_ratio": "within_target_ratio",
    "hotstage_request_class_token_equivalent_latency_seconds": "token_equivalent",
    "hotstage_request_class_slo_penalty_seconds": "slo_penalty",
    "hotstage_endpoint_slo_penalty_seconds": "slo_penalty",
}
_ADDED = frozenset({"requests", "rate"})
"""Fields of a size that add up to those of its fingerprint."""

_OWN = frozenset({"request_class", "size", "endpoint"})

_Key = tuple[Identity, str, str, str]
"""Host, endpoint, fingerprint, size."""

_Cells = dict[_Key, dict[str, float]]


def classes(found: Iterable[Series]) -> Classes:
    """The answer to `Expressions.classes` → rows; a host's name where there are several."""
    cells: _Cells = defaultdict(dict)
    for each in found:
        field = "rate" if each.labels.get(MARK) == "rate" else _FIELDS.get(each.labels.get("__name__", ""))
        if field is None or each.value is None:
            continue
        own = {name: each.labels.get(name, "") for name in _OWN}
        key = (identity(each.labels, _OWN), own["endpoint"], own["request_class"], own["size"])
        cells[key][field] = each.value
    hosts = host_names(host for host, *_ in cells)
    names = hosts if len(hosts) > 1 else dict.fromkeys(hosts, "")
    endpoints = {key: row for key, row in cells.items() if key[1]}
    sized = {key: row for key, row in cells.items() if not key[1] and key[3] not in ("", ALL_SIZES)}
    return Classes(
        float(RATE_SECONDS),
        fingerprints=_rows(_whole(cells, sized), names),
        classes=_rows(sized, names),
        endpoints=_rows(endpoints, names),
    )


def _whole(cells: _Cells, sized: _Cells) -> _Cells:
    """Each fingerprint: what is said of it, and what its sizes add up to."""
    merged: _Cells = defaultdict(dict)
    for (host, endpoint, fingerprint, size), row in cells.items():
        if not endpoint and size in ("", ALL_SIZES):
            merged[host, "", fingerprint, ""].update(row)
    for (host, _, fingerprint, _), row in sized.items():
        whole = merged[host, "", fingerprint, ""]
        for field in _ADDED & row.keys():
            whole[field] = whole.get(field, 0.0) + row[field]
    return merged


def _rows(cells: _Cells, names: Mapping[Identity, str]) -> tuple[ClassRow, ...]:
    made = []
    for (host, endpoint, fingerprint, size), row in list(cells.items())[: parse.MAX_ROWS]:
        token, penalty = parse.positive(row.get("token_equivalent")), parse.positive(row.get("slo_penalty"))
        made.append(
            ClassRow(
                fingerprint=parse.text(fingerprint, 32) or "unknown",
                size=parse.text(size, 24),
                endpoint=parse.text(endpoint, 96),
                requests=parse.integer(row.get("requests")),
                samples=None,
                rate=parse.positive(row.get("rate")),
                mean_seconds=parse.positive(row.get("mean_seconds")),
                p50_seconds=None,
                p95_seconds=parse.positive(row.get("p95_seconds")),
                p99_seconds=parse.positive(row.get("p99_seconds")),
                p99_target_seconds=parse.positive(row.get("p99_target_seconds")),
                within_target_ratio=parse.positive(row.get("within_target_ratio")),
                token_equivalent_ms=None if token is None else token * 1e3,
                slo_penalty_ms=None if penalty is None else penalty * 1e3,
                host=names[host],
            )
        )
    return tuple(made)
