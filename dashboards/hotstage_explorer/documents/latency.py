# SPDX-License-Identifier: Apache-2.0
"""`/v1/latency` and `/v1/components`: what makes the first token late, and the time by component. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hotstage_explorer.parse import integer, positive, rows_of, text

MAX_PARTS = 64
MAX_MODALITIES = 16
MAX_COMPONENTS = 200


@dataclass(frozen=True, slots=True)
class Part:
    """What one stage or wait decided of the time to first token; the shares of all add up to 1."""

    name: str
    is_wait: bool
    count: int | None
    mean_seconds: float | None
    p95_seconds: float | None
    share: float
    is_gap: bool = False
    """Between two marks, where a stage of the same name may have its own."""


@dataclass(frozen=True, slots=True)
class TokenLatency:
    """Of the requests of one modality; `all` is the host."""

    modality: str
    requests: int | None = None
    ttft_samples: int | None = None
    ttft_mean_seconds: float | None = None
    ttft_p50_seconds: float | None = None
    ttft_p95_seconds: float | None = None
    itl_samples: int | None = None
    itl_mean_seconds: float | None = None
    itl_p50_seconds: float | None = None
    itl_p95_seconds: float | None = None
    slowest: str = ""
    parts: tuple[Part, ...] = ()
    host: str = ""

    @property
    def name(self) -> str:
        """Its modality, and of which host where there are several."""
        return f"{self.modality} on {self.host}" if self.host else self.modality


@dataclass(frozen=True, slots=True)
class Latency:
    """All requests first, then the modality whose first token is latest."""

    window_seconds: float | None = None
    rows: tuple[TokenLatency, ...] = ()

    def of_host(self, name: str) -> Latency:
        """The rows of one host; all where the name is "" or nobody's."""
        kept = tuple(row for row in self.rows if row.host == name)
        return replace(self, rows=kept) if name and kept else self


@dataclass(frozen=True, slots=True)
class Component:
    """Time of a request in one stage or wait; `source` is mark, gap or kernel."""

    stage: str
    kind: str
    source: str
    lora: str
    count: int | None
    mean_seconds: float | None
    p95_seconds: float | None
    variance: float | None
    share: float | None


@dataclass(frozen=True, slots=True)
class Components:
    """In the agent's order: the pipeline, waits last; `request` is the whole one."""

    window_seconds: float | None = None
    request: Component | None = None
    rows: tuple[Component, ...] = ()


def latency(content: dict[str, Any]) -> Latency:
    """A body of any shape → rows; modalities without a single request are left out."""
    host = content.get("total")
    said = [host] if isinstance(host, dict) else []
    said += list(rows_of(content, "modalities", MAX_MODALITIES))
    rows = [row for row in map(_tokens, said) if row.requests]
    rows.sort(key=lambda row: (row.modality != "all", -(row.ttft_mean_seconds or 0.0)))
    return Latency(positive(content.get("window_seconds")), tuple(rows))


def components(content: dict[str, Any]) -> Components:
    """A body of any shape → rows."""
    whole = content.get("request")
    return Components(
        positive(content.get("window_seconds")),
        _component(whole) if isinstance(whole, dict) else None,
        tuple(_component(row) for row in rows_of(content, "components", MAX_COMPONENTS)),
    )


def _tokens(row: dict[str, Any]) -> TokenLatency:
    parts = [_part(part) for part in rows_of(row, "parts", MAX_PARTS)]
    return TokenLatency(
        text(row.get("modality"), 24) or "unknown",
        integer(row.get("requests")),
        integer(row.get("ttft_samples")),
        positive(row.get("ttft_mean_seconds")),
        positive(row.get("ttft_p50_seconds")),
        positive(row.get("ttft_p95_seconds")),
        integer(row.get("itl_samples")),
        positive(row.get("itl_mean_seconds")),
        positive(row.get("itl_p50_seconds")),
        positive(row.get("itl_p95_seconds")),
        text(row.get("slowest"), 48),
        tuple(sorted((part for part in parts if part is not None), key=lambda part: -part.share)),
    )


def _part(row: dict[str, Any]) -> Part | None:
    share = positive(row.get("share"))
    if share is None:
        return None
    return Part(
        text(row.get("name"), 48) or "(unnamed)",
        row.get("kind") == "wait",
        integer(row.get("count")),
        positive(row.get("mean_seconds")),
        positive(row.get("p95_seconds")),
        min(share, 1.0),
        row.get("source") == "gap",
    )


def _component(row: dict[str, Any]) -> Component:
    rank, module = integer(row.get("lora_rank")), text(row.get("lora_module"), 24)
    lora = f"rank {rank}" + (f", {module}" if module else "") if rank is not None else module
    return Component(
        text(row.get("stage"), 48) or "(unnamed)",
        text(row.get("kind"), 16),
        text(row.get("source"), 16),
        lora,
        integer(row.get("count")),
        positive(row.get("mean_seconds")),
        positive(row.get("p95_seconds")),
        positive(row.get("variance")),
        positive(row.get("share")),
    )
