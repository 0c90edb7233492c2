# SPDX-License-Identifier: Apache-2.0
"""The thin ctypes seam over libbpf.so.1: one object file in, descriptors of its programs and maps out.

It knows no program by name and makes no link. libbpf 1.1 is enough. Failures carry the end of libbpf's log.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hotstage.errors import PreflightError

_LOG_LINES = 24
_MESSAGE_BYTES = 16 << 20
_PRINT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class LibbpfError(OSError):
    """libbpf or the kernel refused an object; `log` is the end of what libbpf and the verifier said."""

    def __init__(self, code: int, message: str, log: str) -> None:
        super().__init__(code, message)
        self.log = log


class Libbpf:
    """The system's libbpf. Raises PreflightError where there is none."""

    def __init__(self) -> None:
        self._library = _open_libbpf()
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._print = _PRINT(self._on_message)

    def load(
        self,
        path: Path,
        attach_types: Mapping[str, int],
        entries: Mapping[str, int] | None = None,
        shared: Mapping[str, int] | None = None,
    ) -> LibbpfObject:
        """Load the named programs of an object file, each for its kind of link (0: as its section says).

        `entries` overrides max_entries by map name, `shared` has descriptors of maps that exist already and
        take the place of the object's own. Raises LibbpfError, PreflightError for a missing file.
        """
        if not path.exists():
            raise PreflightError(f"{path} is missing", remedy="run `make bpf` in the source checkout")
        self._log.clear()
        self._library.libbpf_set_print(self._print)
        try:
            return self._load(path, attach_types, entries or {}, shared or {})
        finally:
            self._library.libbpf_set_print(_PRINT())

    def _load(
        self,
        path: Path,
        attach_types: Mapping[str, int],
        entries: Mapping[str, int],
        shared: Mapping[str, int],
    ) -> LibbpfObject:
        library = self._library
        handle = library.bpf_object__open_file(os.fsencode(path), None)
        if not handle:
            raise self._error(ctypes.get_errno(), f"{path.name} cannot be opened")
        try:
            self._choose_programs(handle, attach_types)
            for name, count in entries.items():
                bpf_map = library.bpf_object__find_map_by_name(handle, name.encode())
                if bpf_map:
                    library.bpf_map__set_max_entries(bpf_map, count)
            for name, fd in shared.items():
                bpf_map = library.bpf_object__find_map_by_name(handle, name.encode())
                if bpf_map and library.bpf_map__reuse_fd(bpf_map, fd):
                    raise self._error(ctypes.get_errno(), f"{path.name} cannot share the map {name}")
            result = library.bpf_object__load(handle)
            if result:
                raise self._error(-result, os.strerror(-result))
        except BaseException:
            library.bpf_object__close(handle)
            raise
        return LibbpfObject(library, handle)

    def _choose_programs(self, handle: int, attach_types: Mapping[str, int]) -> None:
        library = self._library
        program = library.bpf_object__next_program(handle, None)
        while program:
            attach_type = attach_types.get(library.bpf_program__name(program).decode())
            library.bpf_program__set_autoload(program, attach_type is not None)
            if attach_type:
                library.bpf_program__set_expected_attach_type(program, attach_type)
            program = library.bpf_object__next_program(handle, program)

    def _error(self, code: int, message: str) -> LibbpfError:
        return LibbpfError(code, message, "\n".join(self._log))

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


class LibbpfObject:
    """Programs and maps in the kernel; closing lets go of all descriptors."""

    def __init__(self, library: Any, handle: int) -> None:
        self._library = library
        self._handle: int | None = handle

    def program_fd(self, name: str) -> int:
        """Descriptor of a loaded program; KeyError when there is none of that name."""
        program = self._library.bpf_object__find_program_by_name(self._handle, name.encode())
        return _descriptor(self._library.bpf_program__fd(program) if program else -1, name)

    def map_fd(self, name: str) -> int:
        """Descriptor of a map; KeyError when there is none of that name."""
        bpf_map = self._library.bpf_object__find_map_by_name(self._handle, name.encode())
        return _descriptor(self._library.bpf_map__fd(bpf_map) if bpf_map else -1, name)

    def close(self) -> None:
        """Close all descriptors; links that exist keep their programs."""
        if self._handle is not None:
            self._library.bpf_object__close(self._handle)
        self._handle = None


def _descriptor(fd: int, name: str) -> int:
    if fd < 0:
        raise KeyError(name)
    return fd


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
        ("bpf_map__reuse_fd", integer, (pointer, integer)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, list(arguments)
    return library
