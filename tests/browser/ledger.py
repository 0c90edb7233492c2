# SPDX-License-Identifier: Apache-2.0
"""What an agent said of its points, tick by tick, and what a page must make of it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

from hotstage_explorer import parse
from hotstage_explorer.components.point_table import View as TableView
from hotstage_explorer.components.point_table import point_table
from hotstage_explorer.figures import points as figures
from hotstage_explorer.figures.scale import grown
from hotstage_explorer.picture import HeatPoint, Section
from hotstage_explorer.sources.base import AnswerError, UnreachableError
from hotstage_explorer.sources.wire import Wire

Frame = frozenset[HeatPoint]


class Ledger:
    """Every distinct `/v1/heat` of an agent, while it is written."""

    def __init__(self, agent_url: str) -> None:
        self.frames: list[Frame] = []
        self._url = f"{agent_url}/v1/heat"
        self._wire = Wire()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._done.set()
        self._thread.join(10)

    def find(self, matches: Callable[[Frame], bool]) -> Frame | None:
        """The newest frame that matches; one that is younger than the ledger's last look is waited for."""
        deadline = time.monotonic() + 1.0
        while True:
            found = next((frame for frame in reversed(self.frames) if matches(frame)), None)
            if found or time.monotonic() > deadline:
                return found
            time.sleep(0.05)

    def nearest(self, rows: list[str]) -> str:
        """What differs from the frame that differs least."""
        frame = min(self.frames, key=lambda own: len(set(rows_of(own)) ^ set(rows)))
        mine = set(rows_of(frame))
        return f"{sorted(set(rows) - mine)} instead of {sorted(mine - set(rows))}"

    def _write(self) -> None:
        while not self._done.wait(0.08):
            try:
                reply = self._wire.get(self._url, what="heat", wait=5.0, headers={})
            except (UnreachableError, AnswerError):
                return  # the demo has ended
            frame = frozenset(parse.points(parse.body(reply.body)))
            if frame and (not self.frames or frame != self.frames[-1]):
                self.frames.append(frame)


def same(one: Frame, other: Frame, tolerance: float) -> bool:
    """The same points with the same values; unknown is the same as unknown only."""
    mine, others = ({p.key: astuple(p) for p in frame} for frame in (one, other))
    return mine.keys() == others.keys() and all(
        _equal(a, b, tolerance) for key in mine for a, b in zip(mine[key], others[key], strict=True)
    )


def _equal(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=tolerance, abs_tol=0.0)
    return bool(a == b)


def rows_of(frame: Frame) -> list[str]:
    """What the table says of a frame."""
    table, _ = point_table(Section(tuple(frame), read_at=1.0), TableView())
    (body,) = table.find("tbody")
    return sorted(row.text() for row in body.find("tr"))


def drawn_of(frame: Frame) -> list[list[Any]]:
    """Where the drawing has a frame's points: name, heat, load."""
    selection = figures.select(tuple(frame))
    columns = figures.columns(selection.drawn, grown(None, selection.drawn))
    return sorted([i, x, z] for i, x, z in zip(columns["ids"], columns["x"], columns["z"], strict=True))
