# SPDX-License-Identifier: Apache-2.0
"""The second compiler: the same sources, compiled on this host by bcc, attached by the same links.

bcc knows no kernel functions, so there is no rung S: it is M, or P on older kernels. It makes no link of
its own.
"""

from __future__ import annotations

from pathlib import Path

from hotstage.errors import LoadError, PrivilegeError
from hotstage.probes.loader.base import LoadedPrograms, MapSizes, Rung
from hotstage.probes.loader.bcc_compiler import Compiled, Function, compile_with_bcc
from hotstage.probes.loader.held import HeldPrograms
from hotstage.probes.loader.libbpf import OBJECTS
from hotstage.probes.loader.programs import DROP_PENDING, MAPS, TAKE_OUT, attach_types
from hotstage.probes.loader.translate import translate


class BccLoader(HeldPrograms):
    """The programs of bpf/ in the kernel, compiled by bcc, as long as this object is open."""

    name = "bcc"

    def __init__(self, sources: Path = OBJECTS) -> None:
        super().__init__()
        self._sources = sources
        self._compiled: Compiled | None = None
        self.refusals[Rung.SESSION] = "bcc knows no kernel functions"

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

    def close(self) -> None:
        """As `Loader.close`."""
        if self._compiled is not None:
            self._compiled.close()
        self._compiled = self._loaded = None

    def _load_on(self, rung: Rung, text: str) -> LoadedPrograms:
        functions = [Function(name, "kprobe", kind or -1) for name, kind in attach_types(rung).items()]
        functions += [Function(name, "raw_tracepoint") for name in (TAKE_OUT, DROP_PENDING)]
        self._compiled = compile_with_bcc(text, functions, MAPS)
        return self._hold(LoadedPrograms(rung, self._compiled.programs, self._compiled.maps))
