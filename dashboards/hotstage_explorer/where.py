# SPDX-License-Identifier: Apache-2.0
"""Where on a page somebody is: the item that the path names, and choices from the query. Pure.

Every choice is a link, so it can be sent to others, goes back with the browser's own button and works from
the keyboard. What a browser sends is bounded and never trusted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from hotstage_explorer.parse import text

MAX_ADDRESS = 2000
MAX_CHOICES = 12
MAX_VALUE = 160


@dataclass(frozen=True, slots=True)
class Where:
    """`path` is the page's own, with a slash at its end; `item` "" is the page itself."""

    path: str
    item: str = ""
    choices: tuple[tuple[str, str], ...] = ()

    def choice(self, name: str, allowed: tuple[str, ...] | None = None, default: str = "") -> str:
        """What was chosen; `default` for nothing, or for what is not `allowed`."""
        value = next((said for key, said in self.choices if key == name), default)
        return value if allowed is None or value in allowed else default

    def number(self, name: str, largest: int = 100_000) -> int:
        """A chosen whole number in 0..largest; 0 for anything else."""
        said = self.choice(name)
        value = int(said) if said.isascii() and said.isdecimal() and len(said) < 9 else 0
        return value if value <= largest else 0

    def href(self) -> str:
        """An address on this server."""
        query = urlencode([(name, value) for name, value in self.choices if value])
        return self.path + quote(self.item, safe="") + (f"?{query}" if query else "")

    def at(self, item: str) -> Where:
        """The same choices with another item."""
        return replace(self, item=item)

    def choosing(self, **chosen: str) -> Where:
        """Other choices; "" takes one away. The place in a list begins anew, unless it is what is chosen."""
        gone = {*chosen, *(() if "page" in chosen else ("page",))}
        kept = tuple((name, value) for name, value in self.choices if name not in gone)
        return replace(self, choices=(*kept, *((name, value) for name, value in chosen.items() if value)))


def where(path: str, address: object) -> Where:
    """A browser's path and query → Where; what cannot be is the page itself without choices."""
    if not isinstance(address, str) or len(address) > MAX_ADDRESS:
        return Where(path)
    try:
        parts = urlsplit(address)
        pairs = parse_qsl(parts.query, max_num_fields=MAX_CHOICES)
    except ValueError:
        return Where(path)
    item = ""
    if parts.path.startswith(path):
        item = text(unquote(parts.path[len(path) :]), MAX_VALUE)
    choices = {text(name, 24): text(value, MAX_VALUE) for name, value in pairs if name.isidentifier()}
    return Where(path, item, tuple(choices.items()))
