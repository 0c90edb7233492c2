# SPDX-License-Identifier: Apache-2.0
"""First and further tokens from the agents' metrics. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from hotstage_explorer import parse
from hotstage_explorer.documents.latency import Latency, Part, TokenLatency
from hotstage_explorer.sources.promql import Series
from hotstage_explorer.sources.series import Identity, host_names, identity

WINDOW_SECONDS = 60.0
PART = "hotstage_ttft_part_mean_seconds"
WAITS = frozenset({"queue", "delivery", "unmarked"})
"""Parts that are waits: the metrics do not say which are."""

_OWN = frozenset({"modality", "part"})

_Key = tuple[Identity, str]
"""Host and modality."""


def latency(found: Iterable[Series]) -> Latency:
    """The answer to `Expressions.tokens` → rows, the latest first token first; several hosts stay apart."""
    values: dict[_Key, dict[str, float]] = defaultdict(dict)
    parts: dict[_Key, dict[str, float]] = defaultdict(dict)
    for each in found:
        value, name = parse.positive(each.value), each.labels.get("__name__", "")
        if value is None:
            continue
        key = (identity(each.labels, _OWN), each.labels.get("modality", ""))
        values[key]
        if name == PART:
            parts[key][each.labels.get("part", "")] = value
        else:
            values[key][name] = value
    hosts = host_names(host for host, _ in values)
    names = hosts if len(hosts) > 1 else dict.fromkeys(hosts, "")
    rows = [_row(key, row, parts.get(key, {}), names) for key, row in list(values.items())[:1000]]
    return Latency(WINDOW_SECONDS, tuple(sorted(rows, key=lambda row: -(row.ttft_mean_seconds or 0.0))))


def _row(
    key: _Key, row: Mapping[str, float], parts: Mapping[str, float], names: Mapping[Identity, str]
) -> TokenLatency:
    host, modality = key
    whole = sum(parts.values())
    made = [
        Part(parse.text(name, 48) or "(unnamed)", name in WAITS, None, seconds, None, seconds / whole)
        for name, seconds in parts.items()
        if whole > 0
    ]
    made.sort(key=lambda part: -part.share)
    return TokenLatency(
        parse.text(modality, 24) or "unknown",
        ttft_mean_seconds=whole or None,
        ttft_p50_seconds=row.get("hotstage_ttft_p50_seconds"),
        ttft_p95_seconds=row.get("hotstage_ttft_p95_seconds"),
        itl_p50_seconds=row.get("hotstage_itl_p50_seconds"),
        itl_p95_seconds=row.get("hotstage_itl_p95_seconds"),
        slowest=made[0].name if made else "",
        parts=tuple(made),
        host=names[host],
    )
