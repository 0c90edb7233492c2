# SPDX-License-Identifier: Apache-2.0
"""What a trial may call: one function or two of each kind of library that need no device and change nothing.

Each takes one pointer to an int at most, writes its version there or nothing, and always returns the same.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from hotstage.probes.catalogue.placement import CODE_BYTES, hazard_of, rule_of
from hotstage.probes.discovery.libraries import ParsedLibrary
from hotstage.probes.loader.base import AttachPoint

DRIVER = "libcuda"
VERSION_FUNCTION = "cuDriverGetVersion"
AT_SYMBOL = -1
"""In the place of a rule of `placement`: the probe stands on the first instruction."""
HARMLESS: Mapping[str, tuple[str, ...]] = {
    # Before cuInit: the first writes the version, the second returns 3.
    DRIVER: (VERSION_FUNCTION, "cuCtxSynchronize"),
    # A constant of the library: no cuInit, no look for a driver.
    "libcudart": ("cudaRuntimeGetVersion",),
    "libnccl": ("ncclGetVersion",),
    "libcudnn": ("cudnnGetVersion",),
    "libavcodec": ("avcodec_version",),
    # Hands out the address of a table that it has anyway.
    "libonnxruntime": ("OrtGetApiBase",),
}
NOTHING_HARMLESS = "it exports no function that can be tried"
_NOT_TRIED = {"marks": "hotstage's own functions, which are empty"}


def why_not(kind: str) -> str | None:
    """Why no library of this kind is tried; None where they are."""
    if kind in HARMLESS:
        return None
    return _NOT_TRIED.get(kind, "no function of such a library is known to be harmless")


def rules_of(parsed: ParsedLibrary, points: Collection[AttachPoint]) -> dict[int, int]:
    """Offset of the symbol → by which pattern its probe was placed: those whose placement is tried.

    Of the driver that are the probes behind the symbols; of others, which have none, those on them.
    """
    is_driver, fd = parsed.library.kind == DRIVER, parsed.library.fd
    found = {}
    for point in points:
        if point.offset == point.symbol_offset:
            rule = None if is_driver else AT_SYMBOL
        else:
            rule = rule_of(os.pread(fd, CODE_BYTES, point.symbol_offset))
        if rule is not None:
            found[point.symbol_offset] = rule
    return found


def functions_by_rule(parsed: ParsedLibrary) -> dict[int, str]:
    """For each way of placing, the harmless function of the library that begins like it."""
    is_driver, found = parsed.library.kind == DRIVER, dict[int, str]()
    for symbol in HARMLESS.get(parsed.library.kind, ()):
        function = parsed.elf.functions.get(symbol)
        if function is None:
            continue
        code = os.pread(parsed.library.fd, CODE_BYTES, function.offset)
        rule = rule_of(code) if is_driver else AT_SYMBOL if hazard_of(code) is None else None
        if rule is not None:
            found.setdefault(rule, symbol)
    return found
