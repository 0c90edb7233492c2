# SPDX-License-Identifier: Apache-2.0
"""Panel contents as plain trees, which assets/base.js grows into the page.

Not Dash components: Dash's renderer visits every component of a page several times per update, 0.3 s a tick
for two tables. A tree of text and attributes takes a few milliseconds, keeps focus, open details and scroll
positions, and can carry no markup.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

Child: TypeAlias = "Node | str | None"


@dataclass(frozen=True, slots=True)
class Node:
    """An element; `key` in its attributes keeps it the same element when its siblings change."""

    tag: str
    attributes: dict[str, str]
    children: tuple[Node | str, ...]

    def to_json(self) -> list[Any]:
        """[tag, attributes, child, …], children as they are or as strings."""
        return [self.tag, self.attributes, *(as_json(self.children))]

    def text(self) -> str:
        """All text in reading order."""
        return "".join(child if isinstance(child, str) else child.text() for child in self.children)

    def find(self, tag: str) -> Iterator[Node]:
        """This element and all below it that are a `tag`."""
        if self.tag == tag:
            yield self
        for child in self.children:
            if isinstance(child, Node):
                yield from child.find(tag)


def node(tag: str, *children: Child, cls: str = "", **attributes: str | None) -> Node:
    """An element; None children and attributes are left out, `data_sort=` becomes `data-sort`."""
    named = {name.replace("_", "-"): value for name, value in attributes.items() if value is not None}
    if cls:
        named["class"] = cls
    return Node(tag, named, tuple(child for child in children if child is not None))


def as_json(nodes: tuple[Node | str, ...] | list[Node | str] | list[Node]) -> list[Any]:
    return [child if isinstance(child, str) else child.to_json() for child in nodes]
