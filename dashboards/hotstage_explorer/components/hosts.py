# SPDX-License-Identifier: Apache-2.0
"""Which host is shown, where a source knows several: a row of buttons of which one is pressed."""

from __future__ import annotations

from hotstage_explorer.components.node import Node, node
from hotstage_explorer.components.words import link
from hotstage_explorer.picture import Picture
from hotstage_explorer.where import Where

MAX_BUTTONS = 24
ALL = ""


def chosen_of(value: object, picture: Picture) -> str:
    """A browser's choice; `ALL` for what is not a host of this picture."""
    return next((host.name for host in picture.hosts if host.name == value), ALL)


def hosts(picture: Picture, chosen: str, now: float, where: Where | None = None) -> list[Node]:
    """Nothing for a single host; above `MAX_BUTTONS` the rest is found by the table's filter.

    Links where the page keeps its choices in its address, else buttons.
    """
    if len(picture.hosts) < 2:
        return []
    shown = [host for host in picture.hosts[:MAX_BUTTONS] if host.name != chosen]
    shown += [host for host in picture.hosts if host.name == chosen]
    buttons = [_button("All hosts", ALL, chosen, where)]
    buttons += [
        _button(f"{host.name} (silent)" if host.is_old(now) else host.name, host.name, chosen, where)
        for host in sorted(shown, key=lambda host: host.name)
    ]
    more = len(picture.hosts) - len(shown)
    said = f"and {more:,} more: filter the table by name" if more else ""
    return [
        node("span", "Host", cls="soft", aria_hidden="true"),
        node("div", *buttons, cls="choice hosts", role="group", aria_label="Host"),
        *([node("span", said, cls="soft")] if said else []),
    ]


def _button(label: str, name: str, chosen: str, where: Where | None) -> Node:
    if where is not None:
        return link(label, where.choosing(host=name), is_current=name == chosen, key=name)
    return node(
        "button",
        label,
        type="button",
        data_choose="heat-host",
        data_value=name,
        aria_pressed=str(name == chosen).lower(),
        key=name,
    )
