# SPDX-License-Identifier: Apache-2.0
"""Which files are GPU devices, and the class of an ioctl by its number. A table; calls nothing.

Numbers: NVIDIA's nv_escape.h (src/nvidia/arch/nvalloc/unix/include) and nv-ioctl-numbers.h, uvm_ioctl.h
(kernel-open) of the open kernel modules; <drm/drm.h> of Linux, where 0x40..0x9f are each driver's own, and
<linux/kfd_ioctl.h>.
"""

from __future__ import annotations

import fnmatch

DEVICES: tuple[tuple[str, str], ...] = (
    ("nvidia-uvm", "/dev/nvidia-uvm*"),
    ("nvidia-control", "/dev/nvidiactl"),
    ("nvidia", "/dev/nvidia[0-9]*"),
    ("nvidia-other", "/dev/nvidia*"),
    ("dri", "/dev/dri/*"),
    ("kfd", "/dev/kfd"),
)
"""(kind, pattern of the path) in the order in which they are tried."""

OTHER_NUMBER = 0xFFFFFFFF
_NVIDIA, _DRM, _KFD = ord("F") << 8, ord("d") << 8, ord("K") << 8

_NVIDIA_CLASSES: dict[int, str] = {
    0x27: "allocate", 0x2B: "allocate", 0x4A: "allocate", 0x34: "allocate",
    0x29: "free",
    0x2A: "control",
    0x4E: "map", 0x57: "map", 0x5E: "map", 0x35: "share",
    0x4F: "unmap", 0x58: "unmap",
    0x41: "wait", 218: "wait",
    200: "open", 201: "open", 210: "open", 212: "open", 214: "open", 215: "open",
    206: "event", 207: "event", 209: "event", 213: "event",
    217: "share",
}  # fmt: skip
_UVM_CLASSES: dict[int, str] = {
    37: "open", 75: "open", 25: "open", 27: "open",
    23: "allocate", 73: "allocate", 68: "allocate",
    24: "free", 34: "free",
    33: "map", 65: "map", 66: "unmap",
    51: "migrate", 53: "migrate",
}  # fmt: skip
_DRM_CLASSES: dict[int, str] = {
    0x00: "open", 0x0C: "open", 0x09: "free",
    0x2D: "share", 0x2E: "share",
    0xBF: "event", 0xC0: "event", 0xC1: "share", 0xC2: "share", 0xC3: "wait", 0xCA: "wait",
}  # fmt: skip

_KFD_CLASSES: dict[int, str] = {
    0x02: "open", 0x03: "open", 0x15: "open",
    0x08: "event", 0x09: "event", 0x0A: "event", 0x0B: "event", 0x0C: "wait",
    0x16: "allocate", 0x17: "free", 0x18: "map", 0x19: "unmap",
}  # fmt: skip


def device_of(path: str, patterns: tuple[tuple[str, str], ...] = DEVICES) -> int | None:
    """Which pattern a path matches first, by its place in the list; None: no GPU device."""
    for number, (_, pattern) in enumerate(patterns):
        if fnmatch.fnmatchcase(path, pattern):
            return number
    return None


def class_of(number: int) -> str:
    """`allocate`, `free`, `map`, … of a number as the kernel side keeps it; `driver` for a DRM driver's own,
    `other` for what has no name here.
    """
    if number & ~0xFF == _NVIDIA:
        return _NVIDIA_CLASSES.get(number & 0xFF, "other")
    if number & ~0xFF == _DRM:
        own = 0x40 <= number & 0xFF < 0xA0
        return "driver" if own else _DRM_CLASSES.get(number & 0xFF, "other")
    if number & ~0xFF == _KFD:
        return _KFD_CLASSES.get(number & 0xFF, "other")
    return _UVM_CLASSES.get(number, "other")
