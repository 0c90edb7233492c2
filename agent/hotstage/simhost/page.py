# SPDX-License-Identifier: Apache-2.0
"""The page that the host, the stub libcuda and the stub NVML share: the twin of `stubs/page.h`.

Owns layout and mapping; decides nothing. The host is the only Python writer.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAGE_FILE = "simhost.page"
MAGIC = 0x47534853
MAX_XIDS = 16

UNSUPPORTED = {
    "utilization": 0x1,
    "power": 0x2,
    "temperature": 0x4,
    "ecc": 0x8,
    "processes": 0x10,
    "clocks": 0x20,
    "energy": 0x40,
    "memory": 0x80,
}
"""Bits of `Device.unsupported`: NVML then answers that it does not support the reading."""


class Device(ctypes.Structure):
    """One simulated GPU: identity, capacity, faults, and the readings NVML gives."""

    _fields_ = (
        ("uuid", ctypes.c_char * 48),
        ("name", ctypes.c_char * 64),
        ("pci_bus_id", ctypes.c_char * 32),
        ("total_bytes", ctypes.c_uint64),
        ("reserved_bytes", ctypes.c_uint64),
        ("factor", ctypes.c_double),
        ("hang", ctypes.c_uint32),
        ("lost", ctypes.c_uint32),
        ("unsupported", ctypes.c_uint32),
        ("utilization_percent", ctypes.c_uint32),
        ("memory_percent", ctypes.c_uint32),
        ("power_milliwatts", ctypes.c_uint32),
        ("temperature_celsius", ctypes.c_uint32),
        ("sm_clock_mhz", ctypes.c_uint32),
        ("memory_clock_mhz", ctypes.c_uint32),
        ("clock_reasons", ctypes.c_uint32),
        ("energy_millijoules", ctypes.c_uint64),
        ("ecc_corrected", ctypes.c_uint64),
        ("ecc_uncorrected", ctypes.c_uint64),
    )


class Process(ctypes.Structure):
    """What one process has and did on one device, as its allocator and streams say."""

    _fields_ = (
        ("pid", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
        ("used_bytes", ctypes.c_uint64),
        ("held_bytes", ctypes.c_uint64),
        ("peak_bytes", ctypes.c_uint64),
        ("largest_free_bytes", ctypes.c_uint64),
        ("busy_ns", ctypes.c_uint64),
        ("failed_allocations", ctypes.c_uint64),
    )


class Xid(ctypes.Structure):
    """One GPU error, in the order of raising; `at_ns` is CLOCK_MONOTONIC."""

    _fields_ = (("device", ctypes.c_uint32), ("code", ctypes.c_uint32), ("at_ns", ctypes.c_uint64))


class Page(ctypes.Structure):
    """The whole page."""

    _fields_ = (
        ("magic", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("device_count", ctypes.c_uint32),
        ("xid_count", ctypes.c_uint32),
        ("nvml_delay_ns", ctypes.c_uint64),
        ("devices", Device * 8),
        ("processes", Process * 32),
        ("xids", Xid * MAX_XIDS),
    )

    def raise_xid(self, device: int, code: int, at_ns: int) -> None:
        """Append one; the count moves last, so that a reader never sees a half-written one."""
        self.xids[self.xid_count % MAX_XIDS] = Xid(device, code, at_ns)
        self.xid_count += 1


@contextmanager
def shared_page(path: Path) -> Iterator[Page]:
    """Make the file anew, map it, and remove it at the end."""
    with path.open("w+b") as file:
        file.truncate(ctypes.sizeof(Page))
        mapping = mmap.mmap(file.fileno(), ctypes.sizeof(Page))
    page = Page.from_buffer(mapping)
    page.magic, page.version = MAGIC, 1
    try:
        yield page
    finally:
        path.unlink(missing_ok=True)
