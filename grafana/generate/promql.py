# SPDX-License-Identifier: Apache-2.0
"""PromQL from the metric table: a selector knows its metric's labels, a counter is only read as a rate.

A mistyped label or a rate over a gauge is an error here, not an empty panel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hotstage.sinks.metric import Metric

# Given by the scraper, on every series.
TARGET_LABELS = frozenset({"job", "instance"})

_MATCHER = re.compile(r'(?P<label>[a-z_]+)(=~|!~|=|!=)"[^"]*"')


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between a dashboard and a rule: the matchers of every selector, the range of a rate."""

    matchers: tuple[str, ...]
    range: str

    def select(self, metric: Metric, *matchers: str, suffix: str = "") -> str:
        """`metric{matchers}`. Raises ValueError for a matcher on a label that the metric lacks."""
        for matcher in matchers:
            found = _MATCHER.fullmatch(matcher)
            if found is None or found["label"] not in {*metric.labels, *TARGET_LABELS}:
                raise ValueError(f"{metric.name} has no label for {matcher}; it has {metric.labels}")
        inside = ",".join((*self.matchers, *matchers))
        return f"{metric.name}{suffix}{{{inside}}}" if inside else f"{metric.name}{suffix}"

    def rate(self, metric: Metric, *matchers: str, range: str | None = None) -> str:
        return self._over("rate", metric, "counter", matchers, "", range)

    def increase(self, metric: Metric, *matchers: str, range: str | None = None) -> str:
        return self._over("increase", metric, "counter", matchers, "", range)

    def buckets(self, metric: Metric, *matchers: str, by: str = "le", range: str | None = None) -> str:
        """Rates of a histogram's buckets, summed by `by`, which names `le`."""
        return f"sum by ({by}) ({self._over('rate', metric, 'histogram', matchers, '_bucket', range)})"

    def quantile(
        self, share: float, metric: Metric, *matchers: str, by: tuple[str, ...], range: str | None = None
    ) -> str:
        """A quantile of a classic histogram."""
        inner = self.buckets(metric, *matchers, by=", ".join((*by, "le")), range=range)
        return f"histogram_quantile({share:g}, {inner})"

    def seconds(self, metric: Metric, *matchers: str, range: str | None = None) -> str:
        """What a histogram's sum grows by, per second."""
        return self._over("rate", metric, "histogram", matchers, "_sum", range)

    def observations(self, metric: Metric, *matchers: str, range: str | None = None) -> str:
        """What a histogram's count grows by, per second."""
        return self._over("rate", metric, "histogram", matchers, "_count", range)

    def _over(
        self,
        function: str,
        metric: Metric,
        kind: str,
        matchers: tuple[str, ...],
        suffix: str,
        range: str | None,
    ) -> str:
        if metric.kind != kind:
            raise ValueError(f"{metric.name} is a {metric.kind}: {function} needs a {kind}")
        return f"{function}({self.select(metric, *matchers, suffix=suffix)}[{range or self.range}])"


DASHBOARD = Dialect(('job=~"$job"', 'instance=~"$instance"'), "$__rate_interval")
RULE = Dialect((), "5m")


def total(expression: str, *by: str) -> str:
    """`sum by (…) (…)`."""
    return _folded("sum", expression, by)


def highest(expression: str, *by: str) -> str:
    """`max by (…) (…)`."""
    return _folded("max", expression, by)


def _folded(how: str, expression: str, by: tuple[str, ...]) -> str:
    return f"{how} by ({', '.join(by)}) ({expression})" if by else f"{how}({expression})"
