# SPDX-License-Identifier: Apache-2.0
"""The `expr` of a rule: parsed with Python's `ast` against a whitelist, evaluated for one entity at a time.

    unattributed_ratio > 0.5 and avg(launch_rate, "30s") > 50 unless stale

Arithmetic, comparison, `and or not`; `avg max min rate` of a column over a duration and
`quantile(column, 0.95, "1m")`. Unknown (NaN) stays unknown: `unknown and false` is false, `unknown or true`
is true, anything else with unknown in it neither fires nor clears. Nothing is ever executed as Python.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hotstage.frame.columns import COLUMN_INDEX, COLUMNS
from hotstage.frame.entity import Entity, EntityKind
from hotstage.frame.frame import Frame
from hotstage.frame.history import History

Truth = bool | None
Number = Callable[[Frame, History, Entity], float]
Test = Callable[[Frame, History, Entity], Truth]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNLESS_STALE = re.compile(r"\s+unless\s+stale\s*$")
_DEPTH_MAX = 32
_LENGTH_MAX = 2000

_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: left / right if right else math.nan,
}
_COMPARISON: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_OVER_TIME: dict[str, Callable[[np.ndarray[tuple[int], np.dtype[np.float64]]], float]] = {
    "avg": lambda known: float(np.mean(known)),
    "max": lambda known: float(np.max(known)),
    "min": lambda known: float(np.min(known)),
}
FUNCTIONS = (*_OVER_TIME, "rate", "quantile")


class ExpressionError(ValueError):
    """What is wrong, and at which character of the text (from 0)."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression. `value` is the left side of its first comparison: the number that fired."""

    text: str
    columns: tuple[str, ...]
    kinds: tuple[EntityKind, ...]
    """Entities that all of its columns speak of."""
    unless_stale: bool
    test: Test
    value: Number
    look_back_seconds: float

    def holds(self, frame: Frame, history: History, entity: Entity) -> Truth:
        """True, False, or None = unknown. `history` holds `frame` already."""
        if self.unless_stale and frame.stale:
            return None
        return self.test(frame, history, entity)


def seconds_of(duration: object) -> float | None:
    """`30`, `"30s"`, `"5m"`, `"1h30m"` → seconds; None when it is no duration, or longer than 31 years."""
    if isinstance(duration, bool):
        return None
    if isinstance(duration, int | float):
        return float(duration) if 0 <= duration <= 1e9 else None
    if not isinstance(duration, str):
        return None
    parts = _DURATION.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        return None
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    return seconds if seconds <= 1e9 else None


def parse(text: str) -> Expression:
    """Raises ExpressionError with the position of the first thing that is not allowed."""
    if len(text) > _LENGTH_MAX:
        raise ExpressionError(f"longer than {_LENGTH_MAX} characters", _LENGTH_MAX)
    body = _UNLESS_STALE.sub("", text)
    lead = len(body) - len(body.lstrip())
    flat = body.strip().replace("\n", " ")
    try:
        tree = ast.parse(flat, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        offset = getattr(error, "offset", None)  # from 1; 0 = at the end of the text
        position = offset - 1 if offset else len(flat)
        raise ExpressionError(getattr(error, "msg", None) or "not an expression", lead + position) from None
    compiler = _Compiler(flat, lead)
    test = compiler.test(tree.body, 0)
    if not compiler.columns:
        raise ExpressionError("no column in it: it would always say the same", lead)
    columns = tuple(dict.fromkeys(compiler.columns))
    return Expression(
        text=text.strip(),
        columns=columns,
        kinds=compiler.common_kinds(),
        unless_stale=body != text,
        test=test,
        value=compiler.shown or (lambda frame, history, entity: math.nan),
        look_back_seconds=compiler.look_back_seconds,
    )


class _Compiler:
    """Whitelisted syntax tree → closures. One use."""

    def __init__(self, text: str, lead: int) -> None:
        self._text = text
        self._lead = lead
        self._column_at: dict[str, int] = {}
        self.columns: list[str] = []
        self.shown: Number | None = None
        self.look_back_seconds = 0.0

    def common_kinds(self) -> tuple[EntityKind, ...]:
        kinds = list(EntityKind)
        for name in self.columns:
            known = COLUMNS[COLUMN_INDEX[name]].entities
            rest = [kind for kind in kinds if kind in known]
            if not rest:
                spoken = ", ".join(kinds)
                message = f"`{name}` is a column of {', '.join(known)}, the ones before it of {spoken}"
                raise ExpressionError(message, self._column_at[name])
            kinds = rest
        return tuple(kinds)

    def test(self, node: ast.expr, depth: int) -> Test:
        self._check_depth(node, depth)
        match node:
            case ast.BoolOp(op=ast.And(), values=values):
                return _all([self.test(value, depth + 1) for value in values])
            case ast.BoolOp(op=ast.Or(), values=values):
                return _any([self.test(value, depth + 1) for value in values])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return _not(self.test(operand, depth + 1))
            case ast.Compare():
                return self._comparison(node, depth)
        raise self._error(node, "a comparison is needed here, such as `launch_rate > 0`")

    def number(self, node: ast.expr, depth: int) -> Number:
        self._check_depth(node, depth)
        match node:
            case ast.Constant(value=int() | float() as it) if not isinstance(it, bool) and abs(it) < 1e300:
                return _constant(float(it))
            case ast.Name(id=name):
                return self._column(node, name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _negative(self.number(operand, depth + 1))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return _arithmetic(
                    _ARITHMETIC[type(op)], self.number(left, depth + 1), self.number(right, depth + 1)
                )
            case ast.Call(func=ast.Name(id=name)):
                return self._function(node, name)
        raise self._error(
            node, f"`{ast.unparse(node)[:40]}` is not allowed; numbers, columns, + - * / and functions are"
        )

    def _comparison(self, node: ast.Compare, depth: int) -> Test:
        sides = [self.number(side, depth + 1) for side in (node.left, *node.comparators)]
        for op in node.ops:
            if type(op) not in _COMPARISON:
                raise self._error(node, "only > >= < <= == != compare")
        self.shown = self.shown or sides[0]
        ops = [_COMPARISON[type(op)] for op in node.ops]
        return _all([_compare(op, *pair) for op, pair in zip(ops, pairwise(sides), strict=True)])

    def _column(self, node: ast.expr, name: str) -> Number:
        self._use(node, name)
        return lambda frame, history, entity: frame.get(entity, name)

    def _use(self, node: ast.expr, name: str) -> None:
        if name not in COLUMN_INDEX:
            near = difflib.get_close_matches(name, COLUMN_INDEX, n=1, cutoff=0.0)
            raise self._error(node, f"no column `{name}`; the nearest is `{near[0]}`")
        self.columns.append(name)
        self._column_at.setdefault(name, self._lead + node.col_offset)

    def _function(self, node: ast.Call, name: str) -> Number:
        if name not in FUNCTIONS:
            near = difflib.get_close_matches(name, FUNCTIONS, n=1, cutoff=0.0)
            raise self._error(node, f"no function `{name}`; the nearest is `{near[0]}`")
        wanted = 3 if name == "quantile" else 2
        form = 'quantile(column, 0.95, "1m")' if wanted == 3 else f'{name}(column, "1m")'
        if len(node.args) != wanted or node.keywords or not isinstance(node.args[0], ast.Name):
            raise self._error(node, f"`{name}` is written {form}")
        column = node.args[0].id
        self._use(node.args[0], column)
        last = node.args[-1]
        seconds = seconds_of(last.value) if isinstance(last, ast.Constant) else None
        if not seconds:
            raise self._error(last, 'a duration such as "30s", "5m" or 30 is needed here')
        self.look_back_seconds = max(self.look_back_seconds, seconds)
        if name == "quantile":
            share = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
            if not isinstance(share, int | float) or not 0 <= share <= 1:
                raise self._error(node.args[1], "a share from 0 to 1 is needed here")
            return _over_time(column, seconds, lambda known: float(np.quantile(known, share)))
        if name == "rate":
            return _rate(column, seconds)
        return _over_time(column, seconds, _OVER_TIME[name])

    def _check_depth(self, node: ast.expr, depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise self._error(node, f"nested deeper than {_DEPTH_MAX}")

    def _error(self, node: ast.expr, message: str) -> ExpressionError:
        # `col_offset` counts UTF-8 bytes.
        before = self._text.encode()[: node.col_offset].decode("utf-8", "ignore")
        return ExpressionError(message, self._lead + len(before))


def _constant(value: float) -> Number:
    return lambda frame, history, entity: value


def _negative(operand: Number) -> Number:
    return lambda frame, history, entity: -operand(frame, history, entity)


def _arithmetic(op: Callable[[float, float], float], left: Number, right: Number) -> Number:
    return lambda frame, history, entity: op(left(frame, history, entity), right(frame, history, entity))


def _over_time(column: str, seconds: float, reduce: Callable[..., float]) -> Number:
    def over_time(frame: Frame, history: History, entity: Entity) -> float:
        values = history.series(entity, column, seconds)[1]
        known = values[~np.isnan(values)]
        return reduce(known) if len(known) else math.nan

    return over_time


def _rate(column: str, seconds: float) -> Number:
    """Growth per second between the first and the last known value; a fall is a restart and unknown."""

    def rate(frame: Frame, history: History, entity: Entity) -> float:
        times, values = history.series(entity, column, seconds)
        known = ~np.isnan(values)
        times, values = times[known], values[known]
        if len(values) < 2 or np.any(np.diff(values) < 0):
            return math.nan
        return float((values[-1] - values[0]) / ((times[-1] - times[0]) / 1e9))

    return rate


def _compare(op: Callable[[float, float], bool], left: Number, right: Number) -> Test:
    def compare(frame: Frame, history: History, entity: Entity) -> Truth:
        one, other = left(frame, history, entity), right(frame, history, entity)
        return None if math.isnan(one) or math.isnan(other) else op(one, other)

    return compare


def _all(tests: list[Test]) -> Test:
    def every(frame: Frame, history: History, entity: Entity) -> Truth:
        verdict: Truth = True
        for test in tests:
            match test(frame, history, entity):
                case False:
                    return False  # whatever the others say; looks back are dear
                case None:
                    verdict = None
        return verdict

    return every


def _any(tests: list[Test]) -> Test:
    def some(frame: Frame, history: History, entity: Entity) -> Truth:
        verdict: Truth = False
        for test in tests:
            match test(frame, history, entity):
                case True:
                    return True
                case None:
                    verdict = None
        return verdict

    return some


def _not(test: Test) -> Test:
    def negated(frame: Frame, history: History, entity: Entity) -> Truth:
        verdict = test(frame, history, entity)
        return None if verdict is None else not verdict

    return negated
