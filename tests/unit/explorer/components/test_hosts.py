# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hotstage_explorer.components import hosts
from hotstage_explorer.picture import HostRow, Picture


def picture(*names: str) -> Picture:
    return Picture("http://127.0.0.1:9090", hosts=tuple(HostRow(name, sampled_at=100.0) for name in names))


def test_one_host_is_no_choice() -> None:
    assert hosts.hosts(picture(), hosts.ALL, 100.0) == []
    assert hosts.hosts(picture("gpu-1"), hosts.ALL, 100.0) == []


def test_the_chosen_host_is_pressed_and_a_silent_one_says_so() -> None:
    label, group = hosts.hosts(picture("gpu-1", "gpu-2"), "gpu-2", 200.0)
    assert label.text() == "Host"
    pressed = {button.text(): button.attributes["aria-pressed"] for button in group.find("button")}
    assert pressed == {"All hosts": "false", "gpu-1 (silent)": "false", "gpu-2 (silent)": "true"}


def test_a_choice_that_is_no_host_is_all_of_them() -> None:
    assert hosts.chosen_of("gpu-9", picture("gpu-1", "gpu-2")) == hosts.ALL
    assert hosts.chosen_of(["gpu-1"], picture("gpu-1", "gpu-2")) == hosts.ALL
    assert hosts.chosen_of("gpu-2", picture("gpu-1", "gpu-2")) == "gpu-2"


def test_a_chosen_host_beyond_the_buttons_has_one() -> None:
    names = [f"gpu-{n:03}" for n in range(100)]
    _, group, more = hosts.hosts(picture(*names), "gpu-099", 100.0)
    buttons = [button.text() for button in group.find("button")]
    assert len(buttons) == hosts.MAX_BUTTONS + 2
    assert "gpu-099" in buttons
    assert "and 75 more" in more.text()
