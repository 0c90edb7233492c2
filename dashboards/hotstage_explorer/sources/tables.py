# SPDX-License-Identifier: Apache-2.0
"""What a Prometheus or VictoriaMetrics can answer to the questions of single pages: one expression each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from hotstage_explorer.picture import Section
from hotstage_explorer.questions import Answer, Kind, Question
from hotstage_explorer.sources.base import AnswerError, UnreachableError
from hotstage_explorer.sources.class_series import RATE_SECONDS, classes
from hotstage_explorer.sources.expressions import Expressions
from hotstage_explorer.sources.promql import Engine, PromQL, Series
from hotstage_explorer.sources.token_series import latency

_TABLES: dict[Kind, tuple[Callable[[Expressions], str], Callable[[Iterable[Series]], Any]]] = {
    "classes": (lambda asks: asks.classes(RATE_SECONDS), classes),
    "latency": (lambda asks: asks.tokens, latency),
}


class Tables:
    """Asks by a connection of its own. Not thread-safe, and not shared with whoever reads pictures."""

    def __init__(
        self, client: PromQL, selector: str, timeout_seconds: float, monotonic: Callable[[], float]
    ) -> None:
        self._client = client
        self._selector = selector
        self._timeout_seconds = timeout_seconds
        self._monotonic = monotonic

    def answer(self, question: Question, previous: Answer, engine: Engine | None) -> Answer:
        """As of the newest settled moment, or the value before with the reason.

        `engine` None: nobody has answered yet.
        """
        if question.kind not in _TABLES:
            return replace(previous, problem="no series say it; an agent does")
        if engine is None:
            return replace(previous, problem="the server has not been reached yet")
        expression, read = _TABLES[question.kind]
        asks = Expressions(self._selector, f"{self._monotonic():.3f}" if engine.keeps_searches else "")
        try:
            at = None
            if engine.settle_seconds:
                at = self._client.query("time()", wait=self._timeout_seconds).at - engine.settle_seconds
            found = self._client.query(expression(asks), wait=self._timeout_seconds, at=at)
        except (UnreachableError, AnswerError) as error:
            return replace(previous, problem=str(error))
        return Section(read(found.series), self._monotonic())
