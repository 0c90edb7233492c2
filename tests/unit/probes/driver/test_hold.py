# SPDX-License-Identifier: Apache-2.0
"""A switch lets the tracepoints go and brings them back, however soon one follows the other."""

from __future__ import annotations

from typing import Any

import pytest

from hotstage.clock import SystemClock
from hotstage.probes.driver import watch as driver
from hotstage.probes.driver.pieces import Attached
from hotstage.probes.driver.table import Choice


class Piece:
    events = ()

    def __init__(self) -> None:
        self.is_open = True

    def set_slow_ioctl(self, ns: int) -> None: ...

    def close(self) -> None:
        self.is_open = False

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> driver.DriverWatch:
    monkeypatch.setattr(driver.DriverWatch, "_chosen", lambda self: (Choice((), {}), {}))
    return driver.DriverWatch(SystemClock(), list)


def test_what_is_on_again_is_not_told_as_off(watch: driver.DriverWatch) -> None:
    watch.hold("switched off by uid 0")
    assert (watch.report(None).state, watch.report(None).reason) == ("off", "switched off by uid 0")
    watch.hold(None)
    assert (watch.report(None).state, watch.report(None).reason) == ("starting", None)


def test_what_was_opened_before_a_switch_is_let_go_though_it_is_on_again(
    watch: driver.DriverWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Piece] = []

    def attach(*_: object) -> Attached:
        if not opened:
            watch.hold("switched off")
            watch.hold(None)
        opened.append(Piece())
        return Attached((opened[-1],), {})  # type: ignore[arg-type]

    monkeypatch.setattr(driver, "attach", attach)
    monkeypatch.setattr(driver, "HOUSE_SECONDS", 0.001)
    monkeypatch.setattr(watch, "keep_house", watch._end.set)
    watch._run()
    assert [piece.is_open for piece in opened] == [False, True]
