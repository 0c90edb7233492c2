# SPDX-License-Identifier: Apache-2.0
"""The switch at work: orders, signals and the file come to the same, and an order outlives the agent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hotstage.api.message import ApiError
from hotstage.api.probes import SwitchOrder
from hotstage.config.settings import ProbesConfig
from hotstage.daemon.switch import LOOK_SECONDS, ProbeSwitch
from hotstage.probes.restraint.restraint import Restraint
from hotstage.probes.restraint.switch import Switch, SwitchFile

OFF, ON = SwitchOrder(state="off", reason="an update"), SwitchOrder(state="on", reason="done")


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, f"{what} within 5 s"
        time.sleep(0.005)


class Desk:
    def __init__(self, path: Path, clock: Any) -> None:
        self.file = SwitchFile(path)
        self.restraint = Restraint(ProbesConfig(), clock)
        self.told: list[tuple[Switch, str]] = []
        self.switch = ProbeSwitch(
            self.file, self.restraint, clock, lambda switch, actor: self.told.append((switch, actor))
        )


@pytest.fixture
def open_desk(tmp_path: Path, clock: Any) -> Iterator[Callable[[], Desk]]:
    desks: list[Desk] = []

    def make() -> Desk:
        desks.append(Desk(tmp_path / "probes.off", clock))
        return desks[-1]

    yield make
    for desk in desks:
        desk.switch.stop()


def test_an_order_is_carried_out_written_and_told_with_its_actor(open_desk: Callable[[], Desk]) -> None:
    desk = open_desk()
    body = desk.switch.order(OFF, "uid 0 (root)")
    assert (body["state"], body["actor"], body["reason"]) == ("off", "uid 0 (root)", "an update")
    assert desk.restraint.off == "switched off by uid 0 (root): an update"
    assert desk.file.read().is_off
    body = desk.switch.order(ON, "uid 7")
    assert (body["state"], body["actor"], desk.restraint.off) == ("on", "uid 7", None)
    assert not desk.file.path.exists()
    assert [(switch.is_off, actor) for switch, actor in desk.told] == [
        (True, "uid 0 (root)"),
        (False, "uid 7"),
    ]


def test_off_stays_off_across_a_restart(open_desk: Callable[[], Desk]) -> None:
    open_desk().switch.order(OFF, "uid 0")
    assert open_desk().restraint.off == "switched off by uid 0: an update"


def test_the_file_alone_moves_it(open_desk: Callable[[], Desk]) -> None:
    desk = open_desk()
    desk.switch.start()
    desk.file.path.touch()
    until(lambda: desk.restraint.off is not None, "the file switches off")
    desk.file.path.unlink()
    until(lambda: desk.restraint.off is None, "without it they are on")


def test_a_signal_is_an_order(open_desk: Callable[[], Desk]) -> None:
    desk = open_desk()
    desk.switch.start()
    desk.switch.ask(off=True)
    until(desk.file.path.exists, "the signal is written down")
    assert "SIGUSR1" in (desk.restraint.off or "")
    desk.switch.ask(off=False)
    until(lambda: desk.restraint.off is None, "the other one switches on")


def test_a_full_disk_keeps_nothing_attached(
    open_desk: Callable[[], Desk], tmp_path: Path, clock: Any
) -> None:
    desk = Desk(tmp_path / "gone" / "probes.off", clock)
    with pytest.raises(ApiError, match="cannot be made"):
        desk.switch.order(OFF, "uid 0")
    desk.switch.start()
    time.sleep(3 * LOOK_SECONDS)  # the file's absence is looked at, and is no order
    assert desk.restraint.off is not None
    (tmp_path / "gone").mkdir()
    until(lambda: desk.file.read().is_off, "the order is written when there is room")
    desk.switch.stop()
    assert desk.file.read().actor == "uid 0"


def test_an_order_that_changes_nothing_is_told_to_nobody(open_desk: Callable[[], Desk]) -> None:
    desk = open_desk()
    desk.switch.order(ON, "uid 0")
    desk.switch.order(OFF, "uid 0")
    desk.switch.order(OFF, "uid 1")
    assert [actor for _, actor in desk.told] == ["uid 0"]
    assert desk.switch.document()["actor"] == "uid 0"
