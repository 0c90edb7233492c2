# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import promql_parser
import pytest

from hotstage_explorer.sources.expressions import Expressions


@pytest.mark.parametrize("search", ["", "1700000000.000"])
@pytest.mark.parametrize("selector", ["", 'job="hotstage"', 'job=~"a|b",env!="test"'])
def test_every_expression_is_promql_under_every_selector(selector: str, search: str) -> None:
    asks = Expressions(selector, search)
    for expression in (asks.pulse(), asks.pulse(2), asks.ticks, asks.now, asks.stages(60), asks.windows):
        promql_parser.parse(expression)


def test_the_selector_narrows_every_series() -> None:
    asks = Expressions('job="hotstage"')
    for expression in (asks.pulse(), asks.pulse(2), asks.ticks, asks.now, asks.stages(60), asks.windows):
        assert _selectors(promql_parser.parse(expression)) == {True}


def _selectors(expression: object) -> set[bool]:
    """For each series selector in it: does it have the job's matcher?"""
    if isinstance(expression, promql_parser.MatrixSelector):
        return _selectors(expression.vector_selector)
    if isinstance(expression, promql_parser.VectorSelector):
        return {any(m.name == "job" and m.value == "hotstage" for m in expression.matchers.matchers)}
    parts = [getattr(expression, name, None) for name in ("lhs", "rhs", "expr")]
    parts += list(getattr(expression, "args", ()) or ())
    return set().union(*(_selectors(part) for part in parts if part is not None))
