# SPDX-License-Identifier: Apache-2.0
"""Loading the CO-RE objects with the system's libbpf.so.1 through a thin ctypes seam, on the best rung.

It makes no link (`links.py`) and reads no map. A rung is chosen by loading and linking, never by version.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hotstage.errors import LoadError, PreflightError, PrivilegeError
from hotstage.probes.loader import links
from hotstage.probes.loader.base import (
    Attachment,
    AttachPoint,
    LoadedPrograms,
    MapSizes,
    OpenLibrary,
    Rung,
)
from hotstage.probes.loader.programs import MAPS, attach_types

OBJECTS = Path(__file__).parents[1] / "objects"
_LOG_LINES = 24
_MESSAGE_BYTES = 16 << 20

# `hotstage_nobtf` is the same without kernel functions: it asks nothing of the kernel's BTF.
_OBJECT_OF = {
    Rung.SESSION: "hotstage.bpf.o",
    Rung.MULTI: "hotstage_nobtf.bpf.o",
    Rung.PERF: "hotstage_nobtf.bpf.o",
}
_PRINT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class LibbpfLoader:
    """The programs of bpf/ in the kernel, as long as this object is open."""

    name = "libbpf"

    def __init__(self, objects: Path = OBJECTS) -> None:
        self._objects = objects
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._print = _PRINT(self._on_message)  # libbpf calls it as long as it lives
        self._library = _open_libbpf()
        self._object: int | None = None
        self._loaded: LoadedPrograms | None = None
        self.refusals: dict[Rung, str] = {}
        """Why better rungs than the one in use were not taken."""

    def load(self, sizes: MapSizes, rung: Rung | None = None) -> LoadedPrograms:
        """As `Loader.load`."""
        self._library.libbpf_set_print(self._print)
        failures: list[OSError] = []
        for candidate in (rung,) if rung is not None else Rung:
            try:
                self._object = self._load_on(candidate, sizes)
                self._loaded = self._describe(candidate)
                links.try_links(self._loaded)
                return self._loaded
            except OSError as error:
                self.refusals[candidate] = "\n".join([str(error), *self._log])
                failures.append(error)
                self.close()
        raise self._load_error(failures)

    def attach(self, target: OpenLibrary, points: Sequence[AttachPoint]) -> Attachment:
        """As `Loader.attach`."""
        return links.attach(self._open, target, points)

    def map_fd(self, name: str) -> int:
        """As `Loader.map_fd`."""
        return self._open.maps[name]

    def close(self) -> None:
        """As `Loader.close`; the descriptors of programs and maps are closed with the object."""
        if self._object is not None:
            self._library.bpf_object__close(self._object)
        self._object = self._loaded = None

    @property
    def _open(self) -> LoadedPrograms:
        if self._loaded is None:
            raise LoadError("no programs are loaded")
        return self._loaded

    def _load_on(self, rung: Rung, sizes: MapSizes) -> int:
        self._log.clear()
        library, path = self._library, self._objects / _OBJECT_OF[rung]
        if not path.exists():
            raise PreflightError(f"{path} is missing", remedy="run `make bpf` in the source checkout")
        handle = library.bpf_object__open_file(os.fsencode(path), None)
        if not handle:
            raise OSError(ctypes.get_errno(), f"{path.name} cannot be opened")
        try:
            self._choose_programs(handle, rung)
            for name, entries in sizes.entries().items():
                bpf_map = library.bpf_object__find_map_by_name(handle, name.encode())
                if bpf_map:
                    library.bpf_map__set_max_entries(bpf_map, entries)
            result = library.bpf_object__load(handle)
            if result:
                raise OSError(-result, os.strerror(-result))
        except BaseException:
            library.bpf_object__close(handle)
            raise
        return int(handle)

    def _choose_programs(self, handle: int, rung: Rung) -> None:
        library, wanted = self._library, attach_types(rung)
        program = library.bpf_object__next_program(handle, None)
        while program:
            attach_type = wanted.get(library.bpf_program__name(program).decode())
            library.bpf_program__set_autoload(program, attach_type is not None)
            if attach_type:
                library.bpf_program__set_expected_attach_type(program, attach_type)
            program = library.bpf_object__next_program(handle, program)

    def _describe(self, rung: Rung) -> LoadedPrograms:
        library, handle = self._library, self._object
        programs = {
            name: library.bpf_program__fd(library.bpf_object__find_program_by_name(handle, name.encode()))
            for name in attach_types(rung)
        }
        maps = {
            name: library.bpf_map__fd(library.bpf_object__find_map_by_name(handle, name.encode()))
            for name in MAPS
        }
        return LoadedPrograms(rung, programs, maps)

    def _load_error(self, failures: list[OSError]) -> LoadError | PrivilegeError:
        if all(failure.errno == errno.EPERM for failure in failures):
            return PrivilegeError(
                "the kernel refuses BPF programs to this user",
                remedy="run as root, or with CAP_BPF and CAP_PERFMON (kernels before 6.6: CAP_SYS_ADMIN)",
            )
        reasons = "\n".join(f"rung {rung}: {reason}" for rung, reason in self.refusals.items())
        return LoadError(
            f"the kernel took the programs on no rung\n{reasons}", remedy="see `hotstage doctor`"
        )

    def _on_message(self, level: int, text: bytes, arguments: int) -> int:
        if level > 1:  # 0 warnings, 1 information, 2 debug
            return 0
        # A verifier log comes as one message of up to 16 MiB; untouched pages of the buffer cost nothing.
        with mmap.mmap(-1, _MESSAGE_BYTES) as pages:
            buffer = (ctypes.c_char * _MESSAGE_BYTES).from_buffer(pages)
            ctypes.CDLL(None).vsnprintf(
                buffer, ctypes.c_size_t(_MESSAGE_BYTES), ctypes.c_char_p(text), ctypes.c_void_p(arguments)
            )
            self._log.extend(buffer.value.decode(errors="replace").rstrip("\n").splitlines())
            del buffer
        return 0


def _open_libbpf() -> Any:
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise PreflightError(
            "libbpf.so.1 is not installed",
            remedy="install libbpf1 (Debian, Ubuntu) or libbpf (Fedora), or use --loader bcc",
        ) from error
    pointer, text, integer = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("libbpf_set_print", pointer, (_PRINT,)),
        ("bpf_object__open_file", pointer, (text, pointer)),
        ("bpf_object__load", integer, (pointer,)),
        ("bpf_object__close", None, (pointer,)),
        ("bpf_object__next_program", pointer, (pointer, pointer)),
        ("bpf_object__find_program_by_name", pointer, (pointer, text)),
        ("bpf_object__find_map_by_name", pointer, (pointer, text)),
        ("bpf_program__name", text, (pointer,)),
        ("bpf_program__fd", integer, (pointer,)),
        ("bpf_program__set_autoload", integer, (pointer, ctypes.c_bool)),
        ("bpf_program__set_expected_attach_type", integer, (pointer, integer)),
        ("bpf_map__fd", integer, (pointer,)),
        ("bpf_map__set_max_entries", integer, (pointer, ctypes.c_uint32)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, list(arguments)
    return library
