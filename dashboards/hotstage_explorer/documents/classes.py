# SPDX-License-Identifier: Apache-2.0
"""`/v1/classes`: finished requests by what they brought, by size and by endpoint. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hotstage_explorer.parse import integer, positive, rows_of, text

MAX_CLASSES = 500
SIZES = {
    "up_to_1K": "≤ 1K",
    "up_to_8K": "≤ 8K",
    "up_to_32K": "≤ 32K",
    "up_to_128K": "≤ 128K",
    "over_128K": "> 128K",
    "unknown": "unknown",
}
"""Input tokens, K = 1,024."""


@dataclass(frozen=True, slots=True)
class ClassRow:
    """Quantiles are None below the agent's minimum of samples; ratios 0..1; penalties are weighted ms."""

    fingerprint: str
    size: str
    endpoint: str
    requests: int | None
    samples: int | None
    rate: float | None
    mean_seconds: float | None
    p50_seconds: float | None
    p95_seconds: float | None
    p99_seconds: float | None
    p99_target_seconds: float | None
    within_target_ratio: float | None
    token_equivalent_ms: float | None
    slo_penalty_ms: float | None
    host: str = ""

    @property
    def key(self) -> str:
        return "|".join((self.host, self.endpoint, self.fingerprint, self.size))

    @property
    def is_late(self) -> bool | None:
        """Whether its p99 is above its target; None where one of them is unknown."""
        if self.p99_seconds is None or self.p99_target_seconds is None:
            return None
        return self.p99_seconds > self.p99_target_seconds


@dataclass(frozen=True, slots=True)
class Classes:
    """The same requests three times: by fingerprint, by fingerprint and size, by endpoint and fingerprint."""

    window_seconds: float | None = None
    basis: tuple[tuple[str, str], ...] = ()
    fingerprints: tuple[ClassRow, ...] = ()
    classes: tuple[ClassRow, ...] = ()
    endpoints: tuple[ClassRow, ...] = ()

    def of_host(self, name: str) -> Classes:
        """The rows of one host; all where the name is "" or nobody's."""
        if not any(row.host == name for row in self.fingerprints) or not name:
            return self
        return replace(
            self,
            fingerprints=tuple(row for row in self.fingerprints if row.host == name),
            classes=tuple(row for row in self.classes if row.host == name),
            endpoints=tuple(row for row in self.endpoints if row.host == name),
        )


def classes(content: dict[str, Any]) -> Classes:
    """A body of any shape → rows; those that no request is in are left out."""
    basis = content.get("basis")
    said = list(basis.items())[:12] if isinstance(basis, dict) else []
    return Classes(
        positive(content.get("window_seconds")),
        tuple((text(name, 48), text(words, 300)) for name, words in said if text(words)),
        _rows(content, "fingerprints"),
        _rows(content, "classes"),
        _rows(content, "endpoints"),
    )


def _rows(content: dict[str, Any], name: str) -> tuple[ClassRow, ...]:
    rows = (_row(row) for row in rows_of(content, name, MAX_CLASSES))
    return tuple(row for row in rows if row.requests)


def _row(row: dict[str, Any]) -> ClassRow:
    return ClassRow(
        text(row.get("fingerprint"), 32) or "unknown",
        text(row.get("size"), 24),
        text(row.get("endpoint"), 96),
        integer(row.get("requests")),
        integer(row.get("samples")),
        positive(row.get("rate")),
        positive(row.get("mean_seconds")),
        positive(row.get("p50_seconds")),
        positive(row.get("p95_seconds")),
        positive(row.get("p99_seconds")),
        positive(row.get("p99_target_seconds")),
        positive(row.get("within_target_ratio")),
        positive(row.get("token_equivalent_ms")),
        positive(row.get("slo_penalty_ms")),
    )
