# SPDX-License-Identifier: Apache-2.0
"""What both compilers' loaders do alike with programs that are in the kernel: link them, name their maps."""

from __future__ import annotations

from collections.abc import Sequence

from hotstage.errors import LoadError
from hotstage.probes.loader import links
from hotstage.probes.loader.base import Attachment, AttachPoint, LoadedPrograms, OpenLibrary, Rung


class HeldPrograms:
    """A loader's programs from `_hold` until its `close`."""

    def __init__(self) -> None:
        self._loaded: LoadedPrograms | None = None
        self.refusals: dict[Rung, str] = {}
        """Why better rungs than the one in use were not taken."""

    def attach(self, target: OpenLibrary, points: Sequence[AttachPoint], *, pid: int = 0) -> Attachment:
        """As `Loader.attach`."""
        return links.attach(self._open, target, points, pid=pid)

    def map_fd(self, name: str) -> int:
        """As `Loader.map_fd`."""
        return self._open.maps[name]

    def _hold(self, loaded: LoadedPrograms) -> LoadedPrograms:
        """Keep what was loaded, once links of its rung were tried. Raises OSError when they are refused."""
        self._loaded = loaded
        links.try_links(loaded)
        return loaded

    @property
    def _open(self) -> LoadedPrograms:
        if self._loaded is None:
            raise LoadError("no programs are loaded")
        return self._loaded
