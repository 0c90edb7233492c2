# SPDX-License-Identifier: Apache-2.0
"""Where the functions of a library begin, by what it has for unwinding its stack: also of a stripped one.

The table behind .eh_frame's header (Linux Standard Base, "The .eh_frame_hdr section") has each function that
an exception may pass; compilers write it for all code unless they are told not to.
"""

from __future__ import annotations

import os
import struct

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.discovery.elf import ElfError, program_headers, read_part

FUNCTIONS_LIMIT = 1 << 20

_PT_GNU_EH_FRAME = 0x6474E550
_HEADER = struct.Struct("<BBBBiI")
_ENCODINGS = (1, 0x1B, 0x03, 0x3B)
"""Version 1; relative to here, 32 bits; a count of 32 bits; relative to the table, 32 bits: as linkers do."""


def function_begins(fd: int) -> NDArray[np.int64]:
    """The addresses, as linked, sorted. Raises ElfError where the library has no such table."""
    size = os.fstat(fd).st_size
    headers = [header for header in program_headers(fd, size)[1] if header[0] == _PT_GNU_EH_FRAME]
    if len(headers) != 1:
        raise ElfError("it does not say where its functions begin")
    _, _, offset, address, _, length, _, _ = headers[0]
    if address >= 1 << 62:
        raise ElfError("a table of its functions that lies nowhere")
    head = _HEADER.unpack(read_part(fd, offset, _HEADER.size, size, "the table of its functions"))
    *encodings, _, count = head
    if tuple(encodings) != _ENCODINGS:
        raise ElfError("the table of its functions is of another kind")
    if count > FUNCTIONS_LIMIT or _HEADER.size + 8 * count > length:
        raise ElfError(f"a table of {count} functions")
    table = read_part(fd, offset + _HEADER.size, 8 * count, size, "the table of its functions")
    begins = np.frombuffer(table, "<i4").reshape(-1, 2)[:, 0].astype(np.int64) + address
    return np.sort(begins)
