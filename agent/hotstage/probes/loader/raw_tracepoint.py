# SPDX-License-Identifier: Apache-2.0
"""One small object with one raw tracepoint program: loaded by libbpf, linked by bpf(2), libbpf let go again.

Needs neither bcc nor tracefs. Only for programs beside the counters; it reads no map.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from hotstage.errors import LoadError
from hotstage.probes import bpf
from hotstage.probes.loader.libbpf_object import Libbpf, LibbpfError

_RAW_TRACEPOINT_OPEN = 17


def load_raw_tracepoint(
    path: Path, program: str, tracepoint: str, maps: Sequence[str]
) -> tuple[list[int], dict[str, int]]:
    """Load and attach; → (every descriptor, the caller closes them: that detaches), and the maps by name.

    Raises PreflightError when libbpf or the object is missing, LoadError when the kernel refuses it.
    """
    fds: list[int] = []
    try:
        loaded = Libbpf().load(path, {program: 0})
    except LibbpfError as error:
        raise LoadError(f"the kernel refuses {path.name}: {error.strerror}\n{error.log}".strip()) from error
    try:
        name = ctypes.create_string_buffer(tracepoint.encode())
        attributes = struct.pack("<QI", ctypes.addressof(name), loaded.program_fd(program))
        fds.append(bpf.bpf(_RAW_TRACEPOINT_OPEN, attributes))
        by_name = {map_name: os.dup(loaded.map_fd(map_name)) for map_name in maps}
    except OSError as error:
        for fd in fds:
            os.close(fd)
        raise LoadError(f"{path.name} cannot be attached to {tracepoint}: {error.strerror}") from error
    finally:
        loaded.close()
    return [*fds, *by_name.values()], by_name
