# SPDX-License-Identifier: Apache-2.0
"""The process that loads a library for a trial: confined first, then it calls what it is told and answers.

Standard library only, one library for each process; it ends with its input. A line of JSON is a request, a
line the answer. Nothing that it says is more than the library's word, so it says no text: numbers, and words
of a list.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hotstage.probes.trial.confinement import ExposedError, confine

NAME = "hotstage-trial"
MARKED_ARGUMENTS = (
    0x5EED0000_00000002,
    0x5EED0000_00000003,
    0x5EED0000_00000004,
    0x5EED0000_00000005,
    0x5EED0000_00000006,
)
"""Passed behind the pointer in the argument registers: a function that takes fewer never looks at them."""

FLAGS = (1, 2)
"""Of `cuGetProcAddress`: the legacy default stream, and one for each thread."""
REFUSALS: Mapping[str, str] = {
    "exposed": "it would run as the agent itself, and this kernel has no Landlock to keep it from files",
    "confinement": "the kernel refuses to confine it",
    "needs": "it cannot be loaded here: a library that it needs is not to be found",
    "symbol": "it cannot be loaded here: a function that it needs is not to be found",
    "library": "it cannot be loaded here: the loader does not take it",
}
"""Why there is no library: what the process says, and what that means. It says nothing else."""
_LOADER_SAYS = (("cannot open shared object file", "needs"), ("undefined symbol", "symbol"))


class _Where(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def main() -> None:
    """`subject FD`: load the library behind the descriptor, then serve."""
    path = f"/proc/self/fd/{int(sys.argv[1])}"
    try:
        confine(NAME, [Path(path)])
    except OSError as error:
        _tell({"refused": "exposed" if isinstance(error, ExposedError) else "confinement"})
        return
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        _tell({"refused": next((word for text, word in _LOADER_SAYS if text in str(error)), "library")})
        return
    _tell({"loaded": True})
    for line in sys.stdin:
        request = json.loads(line)
        _tell(_call(library, **request["call"]) if "call" in request else _ask(library, **request["ask"]))


def _tell(answer: dict[str, Any]) -> None:
    print(json.dumps(answer, separators=(",", ":")), flush=True)


def _call(library: ctypes.CDLL, symbol: str, times: int) -> dict[str, Any]:
    """Call `symbol(pointer, …)` so often: its results, what stood behind the pointer, where that was."""
    function = getattr(library, symbol)
    function.restype = ctypes.c_uint32
    value = ctypes.c_uint64(0)
    marked = [ctypes.c_uint64(argument) for argument in MARKED_ARGUMENTS]
    results = [function(ctypes.byref(value), *marked) for _ in range(times)]
    return {"results": sorted(set(results)), "value": value.value, "pointer": ctypes.addressof(value)}


def _ask(library: ctypes.CDLL, symbol: str, names: list[str], versions: list[int]) -> dict[str, Any]:
    """What `cuGetProcAddress` says of each name, version and kind of default stream.

    Rows of (index of the name, version, flags, address less the library's own), only where there is one.
    """
    look_up = getattr(library, symbol)
    base = _base(look_up)
    rows = []
    for index, name in enumerate(names):
        for version in versions:
            for flags in FLAGS:
                address, status = ctypes.c_void_p(), ctypes.c_int()
                tail = (ctypes.byref(status),) if symbol.endswith("_v2") else ()
                look_up(name.encode(), ctypes.byref(address), version, ctypes.c_uint64(flags), *tail)
                if address.value:
                    rows.append((index, version, flags, address.value - base))
    return {"rows": rows}


def _base(function: Any) -> int:
    where = _Where()
    ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(where))
    return int(where.base or 0)
