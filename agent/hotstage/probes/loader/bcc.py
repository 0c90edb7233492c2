# SPDX-License-Identifier: Apache-2.0
"""The second compiler: the same sources, compiled on this host by bcc, attached by the same links.

bcc knows no kernel functions, so there is no rung S: it is M, or P on older kernels. It makes no link of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hotstage.errors import LoadError, PrivilegeError
from hotstage.probes.loader import links
from hotstage.probes.loader.base import (
    Attachment,
    AttachPoint,
    LoadedPrograms,
    MapSizes,
    OpenLibrary,
    Rung,
)
from hotstage.probes.loader.bcc_compiler import Compiled, Function, compile_with_bcc
from hotstage.probes.loader.libbpf import OBJECTS
from hotstage.probes.loader.programs import MAPS, attach_types
from hotstage.probes.loader.translate import translate


class BccLoader:
    """The programs of bpf/ in the kernel, compiled by bcc, as long as this object is open."""

    name = "bcc"

    def __init__(self, sources: Path = OBJECTS) -> None:
        self._sources = sources
        self._compiled: Compiled | None = None
        self._loaded: LoadedPrograms | None = None
        self.refusals: dict[Rung, str] = {Rung.SESSION: "bcc knows no kernel functions"}
        """Why better rungs than the one in use were not taken."""

    @property
    def compile_seconds(self) -> float:
        """From the start of bcc's process to its descriptors in our hands; 0 before `load`."""
        return self._compiled.seconds if self._compiled else 0.0

    def load(self, sizes: MapSizes, rung: Rung | None = None) -> LoadedPrograms:
        """As `Loader.load`."""
        if rung is Rung.SESSION:
            raise LoadError(
                "rung S needs kernel functions, which bcc does not know", remedy="--loader libbpf"
            )
        source = self._sources / "hotstage.bpf.c"
        if not source.exists():
            raise LoadError(f"{source} is missing", remedy="run `make bpf` in the source checkout")
        text = translate(source, sizes.entries())
        failure: LoadError | PrivilegeError | OSError | None = None
        for candidate in (rung,) if rung is not None else (Rung.MULTI, Rung.PERF):
            try:
                return self._load_on(candidate, text)
            except (LoadError, PrivilegeError, OSError) as error:
                self.refusals[candidate] = str(error)
                failure = failure or error
                self.close()
        if isinstance(failure, LoadError | PrivilegeError):
            raise failure
        raise LoadError(f"the kernel took the programs on no rung: {failure}") from failure

    def attach(self, target: OpenLibrary, points: Sequence[AttachPoint]) -> Attachment:
        """As `Loader.attach`."""
        return links.attach(self._open, target, points)

    def map_fd(self, name: str) -> int:
        """As `Loader.map_fd`."""
        return self._open.maps[name]

    def close(self) -> None:
        """As `Loader.close`."""
        if self._compiled is not None:
            self._compiled.close()
        self._compiled = self._loaded = None

    @property
    def _open(self) -> LoadedPrograms:
        if self._loaded is None:
            raise LoadError("no programs are loaded")
        return self._loaded

    def _load_on(self, rung: Rung, text: str) -> LoadedPrograms:
        functions = [Function(name, "kprobe", kind or -1) for name, kind in attach_types(rung).items()]
        self._compiled = compile_with_bcc(text, functions, MAPS)
        self._loaded = LoadedPrograms(rung, self._compiled.programs, self._compiled.maps)
        links.try_links(self._loaded)
        return self._loaded
