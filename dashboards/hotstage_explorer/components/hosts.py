# SPDX-License-Identifier: Apache-2.0
"""Which host is shown, where a source knows several: a row of buttons of which one is pressed."""

from __future__ import annotations

from hotstage_explorer.components.node import Node, node
from hotstage_explorer.picture import Picture

MAX_BUTTONS = 24
ALL = ""


def chosen_of(value: object, picture: Picture) -> str:
    """A browser's choice; `ALL` for what is not a host of this picture."""
    return next((host.name for host in picture.hosts if host.name == value), ALL)


def hosts(picture: Picture, chosen: str, now: float) -> list[Node]:
    """Nothing for a single host; above `MAX_BUTTONS` the rest is found by the table's filter."""
    if len(picture.hosts) < 2:
        return []
    shown = [host for host in picture.hosts[:MAX_BUTTONS] if host.name != chosen]
    shown += [host for host in picture.hosts if host.name == chosen]
    buttons = [_button("All hosts", ALL, chosen)]
    buttons += [
        _button(f"{host.name} (silent)" if host.is_old(now) else host.name, host.name, chosen)
        for host in sorted(shown, key=lambda host: host.name)
    ]
    more = len(picture.hosts) - len(shown)
    said = f"and {more:,} more: filter the table by name" if more else ""
    return [
        node("span", "Host", cls="soft", aria_hidden="true"),
        node("div", *buttons, cls="choice hosts", role="group", aria_label="Host"),
        *([node("span", said, cls="soft")] if said else []),
    ]


def _button(label: str, name: str, chosen: str) -> Node:
    return node(
        "button",
        label,
        type="button",
        data_choose="heat-host",
        data_value=name,
        aria_pressed=str(name == chosen).lower(),
        key=name,
    )
