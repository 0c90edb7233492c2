# SPDX-License-Identifier: Apache-2.0
"""What the agent tells its service manager, and when it keeps silent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotstage.daemon.heartbeat import Heartbeat, Signs

WELL = Signs(rings_are_drained=True, discovery_runs=True, journal_runs=True)


class Manager:
    """Writes down what it hears."""

    watchdog_seconds = 30.0

    def __init__(self) -> None:
        self.heard: list[tuple[str, ...]] = []

    def ready(self, status):
        self.heard.append(("ready", status))

    def status(self, text):
        self.heard.append(("status", text))

    def beat(self):
        self.heard.append(("beat",))

    def reloading(self):
        self.heard.append(("reloading",))

    def stopping(self):
        self.heard.append(("stopping",))


class Agent:
    """A heartbeat whose signs a test sets."""

    def __init__(self) -> None:
        self.manager = Manager()
        self.signs = WELL
        self.attached = "attached: 3 points"
        self.heart = Heartbeat(self.manager, lambda: self.signs, lambda: self.attached)

    def tick(self, *, is_slow: bool = False) -> list[tuple[str, ...]]:
        self.manager.heard.clear()
        self.heart.ticked(is_slow=is_slow)
        return list(self.manager.heard)


@pytest.fixture
def agent() -> Agent:
    return Agent()


def test_it_is_ready_after_its_first_tick_and_only_then(agent):
    assert agent.manager.heard == []
    assert agent.tick() == [("ready", "attached: 3 points"), ("beat",)]
    assert agent.tick() == [("beat",)]


def test_a_slow_tick_says_what_is_attached(agent):
    agent.tick()
    agent.attached = "attached: 4 points"
    assert agent.tick(is_slow=True) == [("beat",), ("status", "attached: 4 points")]


@pytest.mark.parametrize(
    ("sign", "said"),
    [
        ("rings_are_drained", "rings are not drained"),
        ("discovery_runs", "discovery has ended"),
        ("journal_runs", "the journal's thread has ended"),
    ],
)
def test_a_bad_sign_ends_the_beats_and_is_said(agent, sign, said):
    agent.tick()
    agent.signs = replace(WELL, **{sign: False})
    assert agent.tick(is_slow=True) == [("status", f"{said}; attached: 3 points")]
    assert agent.tick() == []


def test_a_sign_that_is_good_again_brings_the_beats_back(agent):
    agent.signs = replace(WELL, rings_are_drained=False)
    agent.tick()
    agent.signs = WELL
    assert agent.tick() == [("beat",)]


def test_a_bad_sign_is_logged_once(agent, caplog):
    agent.signs = replace(WELL, journal_runs=False)
    for _ in range(5):
        agent.tick()
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_reload_begins_and_ends_and_its_note_stays(agent):
    agent.tick()
    agent.manager.heard.clear()
    agent.heart.reloading()
    agent.heart.reloaded("not reloaded: no such key")
    assert agent.manager.heard == [("reloading",), ("ready", "attached: 3 points; not reloaded: no such key")]
    assert agent.tick(is_slow=True)[-1] == ("status", "attached: 3 points; not reloaded: no such key")
    agent.heart.reloaded()
    assert agent.manager.heard[-1] == ("ready", "attached: 3 points")
