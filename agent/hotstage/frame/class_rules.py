# SPDX-License-Identifier: Apache-2.0
"""What `[classes]` says of a request and of a class: token equivalents, penalty, target. Pure.

SLO penalty = weight × max(0, p99 − baseline) of the class's modality; where it has several, of the one with
the largest weight (000 2.1: text .1, image .3, audio .7, video 1.0; 100, 500, 2,500, 5,000 ms). An endpoint
may have a baseline of its own, and a factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hotstage.config.classes import P99_TARGET_SECONDS, SLO_BASELINE_SECONDS, SLO_WEIGHTS, ClassesConfig
from hotstage.frame.rolling import Floats
from hotstage.stages.request_class import MEDIA, MODALITIES_OF, Classified, Fingerprint


class ClassRules:
    """The defaults of the seed, and what the configuration says instead."""

    def __init__(self, config: ClassesConfig) -> None:
        token_weights = _merged({}, config.token_weights)
        self._media_weights = np.array([token_weights.get(medium.name, 1.0) for medium in MEDIA])
        self._text_weight = token_weights.get("text", 1.0)
        self._weights = _merged(SLO_WEIGHTS, config.slo_weights)
        self._baselines = _merged(SLO_BASELINE_SECONDS, config.slo_baseline_seconds)
        self._targets = _merged(P99_TARGET_SECONDS, config.target_seconds)
        self._factor_of = config.endpoint_slo_weights
        self._baseline_of = config.endpoint_slo_baseline_seconds

    def equivalents(self, found: Classified) -> Floats:
        """(R,) token equivalents of requests: Σ weight × tokens, text with the output; 0: nobody said."""
        weighed: Floats = found.media_tokens @ self._media_weights
        return weighed + self._text_weight * (found.text_tokens + found.output_tokens)

    def target_seconds(self, fingerprint: str) -> float | None:
        """The p99 that the class should have; None where it has no target."""
        return self._targets.get(fingerprint)

    def baseline_seconds(self, fingerprint: Fingerprint, endpoint: str | None = None) -> float | None:
        """The p99 up to which there is no penalty; None for a class of which nobody said the modality."""
        heaviest = self._heaviest(fingerprint)
        if heaviest is None:
            return None
        own = self._baselines[heaviest]
        return own if endpoint is None else self._baseline_of.get(endpoint, own)

    def penalty_seconds(
        self, fingerprint: Fingerprint, p99_seconds: float | None, endpoint: str | None = None
    ) -> float | None:
        """None while the p99 is unknown, and for a class of which nobody said the modality."""
        heaviest, baseline = self._heaviest(fingerprint), self.baseline_seconds(fingerprint, endpoint)
        if p99_seconds is None or heaviest is None or baseline is None:
            return None
        factor = 1.0 if endpoint is None else self._factor_of.get(endpoint, 1.0)
        return factor * self._weights[heaviest] * max(0.0, p99_seconds - baseline)

    def _heaviest(self, fingerprint: Fingerprint) -> str | None:
        parts = [each.name for each in MODALITIES_OF[fingerprint]]
        return max(parts, key=lambda name: (self._weights[name], self._baselines[name]), default=None)


def _merged(defaults: Mapping[Any, float], own: Mapping[Any, float]) -> dict[str, float]:
    return {**defaults, **own}
