# SPDX-License-Identifier: Apache-2.0
"""Which modules the kernel has, as far as it matters here: whether one has come since the look before."""

from __future__ import annotations

from pathlib import Path


class Modules:
    """One read of /proc/modules a look, some 0.1 ms. Not for two threads."""

    def __init__(self, proc_root: Path) -> None:
        self._path = proc_root / "modules"
        self._names: frozenset[str] = frozenset()

    def has_grown(self) -> bool:
        """Whether a module is live that was not at the look before (at the first one: at all). Without a list
        to read: False.
        """
        before, self._names = self._names, self._live()
        return not self._names <= before

    def _live(self) -> frozenset[str]:
        """One that is still coming has not told of its tracepoints yet."""
        try:
            lines = self._path.read_text("utf-8", "replace").splitlines()
        except OSError:
            return self._names
        # name, size, references, who refers, state, address
        return frozenset(words[0] for words in map(str.split, lines) if words[4:5] == ["Live"])
