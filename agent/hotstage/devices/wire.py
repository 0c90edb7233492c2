# SPDX-License-Identifier: Apache-2.0
"""The records on the pipe from the devices process: layout only, standard library only, packed little-endian.

A record is a header (magic, kind, number of bytes that follow) and one packed structure. NaN = unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

MAGIC = 0x48534456

HEADER = struct.Struct("<III")


class RecordKind(IntEnum):
    """Second word of the header."""

    state = 1
    device = 2
    xid = 3


Fields = tuple[tuple[str, str], ...]
"""(name, code of `struct`); `48s` is NUL-padded text."""

DEVICE_FIELDS: Fields = (
    ("uuid", "48s"),
    ("pci_bus_id", "32s"),
    ("name", "64s"),
    ("at_ns", "Q"),  # memory
    ("slow_at_ns", "Q"),  # utilisation, clocks, power, temperature
    ("index", "I"),
    ("is_lost", "I"),  # the driver says that the GPU is lost or needs a reset
    ("memory_used_bytes", "d"),
    ("memory_total_bytes", "d"),
    ("utilisation_ratio", "d"),  # duty cycle: share of time with a kernel running
    ("memory_busy_ratio", "d"),  # share of time memory was accessed; not bandwidth
    ("power_watts", "d"),
    ("power_limit_watts", "d"),
    ("temperature_celsius", "d"),
    ("sm_clock_hertz", "d"),
    ("memory_clock_hertz", "d"),
    ("energy_joules", "d"),  # since the driver was loaded
    ("event_reasons", "Q"),  # bit mask of NVML's clocks event reasons
    ("call_seconds", "d"),  # slowest NVML call of the last round
)

STATE_FIELDS: Fields = (
    ("at_ns", "Q"),
    ("status", "I"),
    ("gpus", "I"),
    ("driver", "32s"),
    ("reason", "192s"),
)

XID_FIELDS: Fields = (("at_ns", "Q"), ("xid", "Q"), ("pci_bus_id", "32s"))


class Status(IntEnum):
    """`status` of a state record."""

    working = 0
    no_library = 1  # libnvidia-ml.so.1 is not there: a host without the driver
    refused = 2  # NVML is there and does not start, or has to be loaded again


_BY_KIND: dict[RecordKind, Fields] = {
    RecordKind.state: STATE_FIELDS,
    RecordKind.device: DEVICE_FIELDS,
    RecordKind.xid: XID_FIELDS,
}

LAYOUTS: dict[RecordKind, struct.Struct] = {
    kind: struct.Struct("<" + "".join(code for _, code in fields)) for kind, fields in _BY_KIND.items()
}


def pack(kind: RecordKind, values: Sequence[bytes | float | int]) -> bytes:
    """One record; longer texts are cut by `struct`."""
    layout = LAYOUTS[kind]
    return HEADER.pack(MAGIC, kind, layout.size) + layout.pack(*values)


def unpack(kind: RecordKind, record: bytes) -> dict[str, bytes | float | int]:
    """A packed structure's values by name."""
    values = LAYOUTS[kind].unpack(record)
    return {name: value for (name, _), value in zip(_BY_KIND[kind], values, strict=True)}


_KINDS = {int(kind): kind for kind in RecordKind}


class RecordReader:
    """Bytes in any portions → whole records. A stream that is not ours raises ValueError."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> list[tuple[RecordKind, bytes]]:
        """The records that are complete now, as (kind, packed structure)."""
        pending, at = self._pending + data, 0
        records = []
        while len(pending) - at >= HEADER.size:
            magic, number, size = HEADER.unpack_from(pending, at)
            kind = _KINDS.get(number)
            if magic != MAGIC or kind is None or LAYOUTS[kind].size != size:
                raise ValueError("not a record of the devices process")
            begin = at + HEADER.size
            if len(pending) < begin + size:
                break
            at = begin + size
            records.append((kind, pending[begin:at]))
        self._pending = pending[at:]
        return records
