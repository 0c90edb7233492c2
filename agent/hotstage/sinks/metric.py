# SPDX-License-Identifier: Apache-2.0
"""The shape of a row of the metric table, and its name in OpenTelemetry. No metric, no client library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

_OTEL_UNITS = {"_seconds": "s", "_bytes": "By", "_ratio": "1"}


@dataclass(frozen=True, slots=True)
class Metric:
    """`cap` bounds the children: further label values of a counter or histogram share `other`, further gauges
    are left out; both are counted as dropped. `counts` names what a number without a unit counts, for OTLP.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    cap: int = 32
    edges: tuple[float, ...] = ()
    counts: str = ""

    @property
    def series_max(self) -> int:
        """Time series at its cap; a histogram has a bucket per edge, +Inf, sum and count."""
        children = self.cap if self.labels else 1
        return children * (len(self.edges) + 3 if self.kind == "histogram" else 1)

    @property
    def otel_name(self) -> str:
        """`hotstage_stage_wait_seconds_total` → `hotstage.stage.wait`.

        What OpenTelemetry's rules for Prometheus make of it, and of the unit, is `name` again, so that one
        query works on both ways.
        """
        return self._without_unit().replace("_", ".", 2)

    @property
    def otel_unit(self) -> str:
        """UCUM; `{request}` and the like for what is counted, empty for states."""
        unit = next((unit for suffix, unit in _OTEL_UNITS.items() if self._plain.endswith(suffix)), None)
        if unit is not None:
            return unit
        return f"{{{self.counts}}}" if self.counts else ""

    @property
    def _plain(self) -> str:
        return self.name.removesuffix("_total")

    def _without_unit(self) -> str:
        return next(
            (self._plain.removesuffix(suffix) for suffix in _OTEL_UNITS if self._plain.endswith(suffix)),
            self._plain,
        )
