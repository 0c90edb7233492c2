# SPDX-License-Identifier: Apache-2.0
"""What cuGetProcAddress answers, and where in its library the address lies. It calls nothing it obtains."""

from __future__ import annotations

import ctypes
from typing import Any

from gpu_checks.programs.driver import Driver

LEGACY_STREAM, PER_THREAD_STREAM = 1, 2  # CUdriverProcAddress_flags, cuda.h


class _Where(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def ask(driver: Driver, names: list[str], versions: list[int]) -> list[dict[str, Any]]:
    """One row per name × version × flags: the address within its library, None where there is no such
    entry point (too new for that version, or none at all).
    """
    symbol = "cuGetProcAddress_v2" if driver.has("cuGetProcAddress_v2") else "cuGetProcAddress"
    rows = []
    for name in names:
        for version in versions:
            for flags in (LEGACY_STREAM, PER_THREAD_STREAM):
                address = ctypes.c_void_p()
                status = ctypes.c_int()
                tail = (ctypes.byref(status),) if symbol.endswith("_v2") else ()
                driver.function(symbol)(
                    name.encode(), ctypes.byref(address), version, ctypes.c_uint64(flags), *tail
                )
                rows.append(
                    {
                        "name": name,
                        "version": version,
                        "flags": flags,
                        "address": within_library(address.value) if address.value else None,
                    }
                )
    return rows


def within_library(address: int) -> int | None:
    """The address as the library's own file has it; None when it lies in no file that is known."""
    where = _Where()
    libc = ctypes.CDLL(None)
    if not libc.dladdr(ctypes.c_void_p(address), ctypes.byref(where)) or not where.base:
        return None
    return address - int(where.base)
