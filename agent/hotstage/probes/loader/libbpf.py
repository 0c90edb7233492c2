# SPDX-License-Identifier: Apache-2.0
"""The first loader: the objects built from bpf/, loaded by the system's libbpf on the best rung there is.

It makes no link (`links.py`) and reads no map. A rung is chosen by loading and linking, never by version.
"""

from __future__ import annotations

import errno
from pathlib import Path

from hotstage.errors import LoadError, PrivilegeError
from hotstage.probes.loader.base import LoadedPrograms, MapSizes, Rung
from hotstage.probes.loader.held import HeldPrograms
from hotstage.probes.loader.libbpf_object import Libbpf, LibbpfError, LibbpfObject
from hotstage.probes.loader.programs import DROP_PENDING, MAPS, attach_types

OBJECTS = Path(__file__).parents[1] / "objects"
"""Where `make bpf` puts the objects and copies of their sources."""

# `hotstage_pairs` is the same without kernel functions; `hotstage_nobtf` asks nothing of the kernel's BTF and
# cannot tell how long a task waited for a CPU.
_OBJECTS_OF = {
    Rung.SESSION: ("hotstage.bpf.o",),
    Rung.MULTI: ("hotstage_pairs.bpf.o", "hotstage_nobtf.bpf.o"),
    Rung.PERF: ("hotstage_pairs.bpf.o", "hotstage_nobtf.bpf.o"),
}
_KERNEL_BTF = Path("/sys/kernel/btf/vmlinux")


class LibbpfLoader(HeldPrograms):
    """The programs of bpf/ in the kernel, as long as this object is open."""

    name = "libbpf"

    def __init__(self, objects: Path = OBJECTS) -> None:
        super().__init__()
        self._objects = objects
        self._libbpf = Libbpf()
        self._object: LibbpfObject | None = None

    def load(self, sizes: MapSizes, rung: Rung | None = None) -> LoadedPrograms:
        """As `Loader.load`."""
        failures: list[OSError] = []
        for candidate in (rung,) if rung is not None else Rung:
            try:
                return self._load_on(candidate, sizes)
            except OSError as error:
                log = error.log if isinstance(error, LibbpfError) else ""
                self.refusals[candidate] = f"{error}\n{log}".strip()
                failures.append(error)
                self.close()
        if all(failure.errno == errno.EPERM for failure in failures):
            raise PrivilegeError(
                "the kernel refuses BPF programs to this user",
                remedy="run as root, or with CAP_BPF and CAP_PERFMON (kernels before 6.6: CAP_SYS_ADMIN)",
            )
        last = failures[-1]
        # The programs are loaded and only their links refused: a right is missing, nothing else.
        if Rung.PERF in self.refusals and last.errno == errno.EACCES and not isinstance(last, LibbpfError):
            raise PrivilegeError(
                "the kernel refuses perf-event links, which rung P is made of, to this user",
                remedy="grant CAP_SYS_ADMIN, or take Linux 6.6 or newer, which does without",
            )
        reasons = "\n".join(f"rung {rung}: {reason}" for rung, reason in self.refusals.items())
        raise LoadError(
            f"the kernel takes the programs on no rung\n{reasons}", remedy="see `hotstage doctor`"
        )

    def close(self) -> None:
        """As `Loader.close`; the descriptors of programs and maps are closed with the object."""
        if self._object is not None:
            self._object.close()
        self._object = self._loaded = None

    def _load_on(self, rung: Rung, sizes: MapSizes) -> LoadedPrograms:
        types = {**attach_types(rung), DROP_PENDING: 0}
        name = _OBJECTS_OF[rung][0 if _KERNEL_BTF.exists() else -1]
        self._object = self._libbpf.load(self._objects / name, types, sizes.entries())
        return self._hold(
            LoadedPrograms(
                rung,
                {name: self._object.program_fd(name) for name in types},
                {name: self._object.map_fd(name) for name in MAPS},
            )
        )
