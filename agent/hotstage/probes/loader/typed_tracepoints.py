# SPDX-License-Identifier: Apache-2.0
"""A small object of typed tracepoint programs (`tp_btf`): loaded by libbpf beside the counters, linked by
bpf(2), let go and linked again at will. It reads no map.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from hotstage.errors import LoadError, PreflightError
from hotstage.probes import bpf
from hotstage.probes.loader.libbpf_object import Libbpf, LibbpfError

_RAW_TRACEPOINT_OPEN = 17


class TypedTracepoints:
    """Programs in the kernel as long as this is open; they run while they are attached."""

    def __init__(
        self,
        path: Path,
        programs: Sequence[str],
        *,
        entries: Mapping[str, int],
        shared: Mapping[str, int],
    ) -> None:
        """`entries`: sizes by map name; `shared`: maps of another object, by their names in this one.

        Raises PreflightError when libbpf, the object or the kernel's BTF is missing, LoadError when the
        kernel refuses it.
        """
        if not Path("/sys/kernel/btf/vmlinux").exists():
            raise PreflightError(
                "the kernel has no BTF of its own, which typed tracepoints need",
                remedy="take a kernel with CONFIG_DEBUG_INFO_BTF",
            )
        try:
            self._object = Libbpf().load(path, dict.fromkeys(programs, 0), entries, shared)
        except LibbpfError as error:
            raise LoadError(
                f"the kernel refuses {path.name}: {error.strerror}\n{error.log}".strip()
            ) from error
        self._programs = tuple(programs)
        self._links: list[int] = []

    @property
    def is_attached(self) -> bool:
        return bool(self._links)

    def attach(self) -> None:
        """All programs to their tracepoints. Raises LoadError; none is attached then."""
        try:
            for program in self._programs[len(self._links) :]:
                # Without a name: the program says itself which tracepoint it was made for.
                attributes = struct.pack("<QI", 0, self._object.program_fd(program))
                self._links.append(bpf.bpf(_RAW_TRACEPOINT_OPEN, attributes))
        except OSError as error:
            self.detach()
            raise LoadError(f"{program} cannot be attached: {error.strerror}") from error

    def detach(self) -> None:
        """None of them runs any more; maps and their sums stay."""
        while self._links:
            os.close(self._links.pop())

    def map_fd(self, name: str) -> int:
        """Descriptor of a map; KeyError when there is none of that name."""
        return self._object.map_fd(name)

    def close(self) -> None:
        self.detach()
        self._object.close()
