# SPDX-License-Identifier: Apache-2.0
"""The tables of `hotstage top`: one view each, with its columns, their words and what each gives up for room.

To add a view: a function from `Top` to its rows, a tuple of columns, a line in `VIEWS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from hotstage.api.top_types import Top, TopProcess
from hotstage.cli.terminal import DASH, cell, seconds, size

Style = Literal["", "bold", "dim", "reverse", "warning"]


@dataclass(frozen=True, slots=True)
class Column:
    """`rank`: where room is short, the highest goes first; 0 stays. `order` gives what rows are sorted by,
    the largest first; None: not by this column.
    """

    name: str
    rank: int
    text: Callable[[Any], str]
    order: Callable[[Any], float | int | None] | None = None
    is_number: bool = True
    is_warning: Callable[[Any], bool] = lambda row: False


@dataclass(frozen=True, slots=True)
class View:
    """One table. `key` shows it; `sort` is the name of the column that its rows begin sorted by, None: the
    order of `rows`.
    """

    name: str
    key: str
    rows: Callable[[Top], Sequence[Any]]
    columns: tuple[Column, ...]
    sort: str | None
    empty: str

    @property
    def sorts(self) -> list[str]:
        """Names of what its rows can be sorted by."""
        return [column.name for column in self.columns if column.order is not None]

    def sorted(self, top: Top, by: str | None) -> list[Any]:
        """Rows, the largest first; what is unknown last, equal ones as they came."""
        rows = list(self.rows(top))
        order = next((column.order for column in self.columns if column.name == by), None)
        if order is None:
            return rows
        known = [(value, row) for row in rows if (value := order(row)) is not None]
        unknown = [row for row in rows if order(row) is None]
        return [row for _, row in sorted(known, key=lambda pair: -pair[0])] + unknown


def rate(value: float | None) -> str:
    """A second's: `0.12`, `1234`; below a thousandth `0`."""
    return DASH if value is None else cell(float(value)) if value >= 0.001 else "0"


def thread_share(value: float | None) -> str:
    """Threads on average, as a share of one thread's time: `63%`, `210%`."""
    return DASH if value is None else f"{value:.0%}" if value >= 0.1 or not value else f"{value:.1%}"


IN_FLIGHT_SECONDS = 1.0
"""A call that is open for so long is told beside the mean, which knows it only once it has returned."""


def _waits(name: str, rank: int, kind: str) -> Column:
    """`63%`, of calls that returned; `0% + 61.2 s in flight` where one has not for long."""
    mean, age = attrgetter(f"{kind}_wait_threads"), attrgetter(f"{kind}_open_seconds")

    def is_long(row: Any) -> bool:
        return (age(row) or 0.0) >= IN_FLIGHT_SECONDS

    def text(row: Any) -> str:
        return thread_share(mean(row)) + (f" + {seconds(age(row))} in flight" if is_long(row) else "")

    def order(row: Any) -> float | None:
        """What is stuck before what waits much."""
        waiting: float | None = mean(row)
        return waiting if not is_long(row) else (waiting or 0.0) + 1e6 * age(row)

    return Column(name, rank, text, order, is_warning=is_long)


def share(value: float | None) -> str:
    """Of a whole: `3.2%`."""
    return DASH if value is None else f"{value:.1%}"


def _number(name: str, rank: int, field: str, text: Callable[[Any], str] = cell) -> Column:
    value = attrgetter(field)
    return Column(name, rank, lambda row: text(value(row)), value)


def _errors(row: TopProcess) -> bool:
    return bool(row.errors_per_second)


def _memory(row: TopProcess) -> str:
    return ("≥ " if row.gpu_memory_is_complete is False else "") + size(row.gpu_memory_bytes)


def _level(row: TopProcess) -> str:
    """What is left of its probes: the governor's level, or why they are not all attached."""
    if row.state not in (None, "attached"):
        return cell(row.state)
    return cell(row.probe_level or row.state or "not watched")


def _is_restrained(row: TopProcess) -> bool:
    return _level(row) not in ("full", "attached", "not watched")


PROCESSES = View(
    name="processes",
    key="p",
    rows=lambda top: top.processes,
    columns=(
        _number("pid", 0, "pid"),
        Column("process", 0, lambda row: cell(row.name), is_number=False),
        _number("launch/s", 1, "launches_per_second", rate),
        _number("call/s", 4, "calls_per_second", rate),
        _waits("sync", 2, "sync"),
        _waits("copy", 5, "copy"),
        _waits("alloc", 6, "alloc"),
        Column(
            "err/s",
            2,
            lambda row: rate(row.errors_per_second),
            attrgetter("errors_per_second"),
            is_warning=_errors,
        ),
        _number("in call", 3, "longest_call_seconds", seconds),
        Column("GPU mem", 1, _memory, attrgetter("gpu_memory_bytes")),
        _number("run queue", 7, "cpu_wait_threads", thread_share),
        _number("reqs", 3, "requests_in_flight"),
        _number("no stage", 9, "unattributed_ratio", share),
        _number("probes", 4, "probe_cost_ratio", share),
        Column("level", 2, _level, is_number=False, is_warning=_is_restrained),
    ),
    sort="launch/s",
    empty="no process uses a CUDA library or the marks yet; hotstage attaches when one does",
)


STAGES = View(
    name="stages",
    key="t",
    rows=lambda top: top.stages,
    columns=(
        Column("stage", 0, lambda row: cell(row.stage), is_number=False),
        Column("modality", 0, lambda row: cell(row.modality), is_number=False),
        _number("run/s", 2, "runs_per_second", rate),
        _number("in flight", 1, "runs_in_flight"),
        _number("oldest", 3, "oldest_seconds", seconds),
        _number("p95", 1, "p95_seconds", seconds),
        _number("launch/s", 2, "launches_per_second", rate),
        _number("call/s", 5, "calls_per_second", rate),
        _waits("sync", 3, "sync"),
        _waits("copy", 6, "copy"),
        _waits("alloc", 7, "alloc"),
        _number("GPU mem", 4, "gpu_memory_bytes", size),
        _number("run queue", 8, "cpu_wait_threads", thread_share),
        Column(
            "window",
            4,
            lambda row: cell(", ".join(row.windows_open) or None),
            is_number=False,
            is_warning=lambda row: bool(row.windows_open),
        ),
    ),
    sort=None,
    empty="no stage to show: no request has passed one yet, or the probes are off",
)

VIEWS: tuple[View, ...] = (PROCESSES, STAGES)
SORTS: tuple[str, ...] = tuple(dict.fromkeys(name for view in VIEWS for name in view.sorts))
"""What `--sort` takes, of any view."""
