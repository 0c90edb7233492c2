# SPDX-License-Identifier: Apache-2.0
"""A BPF program of two instructions that does nothing: whether it loads, and which tracepoints take it.

It needs no libbpf, no BTF and no tracefs, and every descriptor is closed before a function returns.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

from hotstage.cli.doctor.host import Host
from hotstage.probes import bpf

_PROG_LOAD, _RAW_TRACEPOINT_OPEN = 5, 17
_PROGRAM_TYPE_RAW_TRACEPOINT = 17
_RETURN_0 = struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0)  # r0 = 0; exit
_PERMISSION = (errno.EPERM, errno.EACCES)


@dataclass(frozen=True, slots=True)
class BpfTrial:
    """`error` is None when the program loaded; `machine_code_bytes` is None where the kernel hides it."""

    error: str | None
    is_permission: bool
    machine_code_bytes: int | None


@dataclass(frozen=True, slots=True)
class AttachTrial:
    """`is_present` is None when nobody could tell; `error` is None when a program was attached."""

    is_present: bool | None
    error: str | None


def try_bpf(host: Host) -> BpfTrial:
    """A trial for `Host.once`."""
    try:
        with closing(_Program()) as program:
            return BpfTrial(None, False, program.machine_code_bytes())
    except OSError as error:
        return BpfTrial(_name(error), error.errno in _PERMISSION, None)


def try_tracepoints(names: Iterable[str]) -> dict[str, AttachTrial]:
    """Attach to each tracepoint by its bare name and let go at once; a module's are found too."""
    try:
        with closing(_Program()) as program:
            return {name: _try_one(program, name) for name in names}
    except OSError as error:
        return {name: AttachTrial(None, _name(error)) for name in names}


def _try_one(program: _Program, name: str) -> AttachTrial:
    held = ctypes.create_string_buffer(name.encode())
    attributes = struct.pack("<QI", ctypes.addressof(held), program.fd)
    try:
        os.close(bpf.bpf(_RAW_TRACEPOINT_OPEN, attributes))
    except FileNotFoundError:
        return AttachTrial(False, "ENOENT")
    except OSError as error:
        return AttachTrial(None, _name(error))
    return AttachTrial(True, None)


class _Program:
    def __init__(self) -> None:
        code = ctypes.create_string_buffer(_RETURN_0, len(_RETURN_0))
        licence = ctypes.create_string_buffer(b"Dual BSD/GPL")
        self.fd = bpf.bpf(
            _PROG_LOAD,
            struct.pack(
                "<IIQQIIQII16s",
                _PROGRAM_TYPE_RAW_TRACEPOINT,
                len(_RETURN_0) // 8,
                ctypes.addressof(code),
                ctypes.addressof(licence),
                0,
                0,
                0,
                0,
                0,
                b"hotstage_trial",
            ),
        )

    def machine_code_bytes(self) -> int | None:
        """`jited_prog_len` of struct bpf_prog_info (linux/bpf.h); 0 and absent mean the same there."""
        info = ctypes.create_string_buffer(256)
        try:
            bpf.bpf(bpf.OBJECT_INFO, struct.pack("<IIQ", self.fd, len(info), ctypes.addressof(info)))
        except OSError:
            return None
        return struct.unpack_from("<I", info, 16)[0] or None

    def close(self) -> None:
        os.close(self.fd)


def _name(error: OSError) -> str:
    return f"{errno.errorcode.get(error.errno or 0, '?')} ({error.strerror})"
