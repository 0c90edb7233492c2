# SPDX-License-Identifier: Apache-2.0
"""Kernel modules from an unpacked package: which ones, in which order, as the kernel takes them."""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterable
from pathlib import Path

DRIVERS = ("virtio_pci", "vgem", "virtio_gpu", "gpu_sched", "i915", "xe")
"""vgem and virtio_gpu have a device in the guest; of the others the tracepoints come with the module."""
LATE = ("amdgpu",)
"""Loaded once the agent's part is running."""
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


def in_order(root: Path, names: Iterable[str]) -> list[tuple[str, bytes]]:
    """(name, module) of those that this kernel has as modules, each behind what it depends on."""
    files = {re.sub(r"\.ko(\.xz)?$", "", path.name).replace("-", "_"): path for path in root.rglob("*.ko*")}
    done: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in done or name not in files:  # built in, or not in this series
            return
        data = files[name].read_bytes()
        module = lzma.decompress(data) if files[name].suffix == ".xz" else data
        depends = _DEPENDS.search(module)
        for other in depends[1].decode().split(",") if depends and depends[1] else ():
            add(other.replace("-", "_"))
        done[name] = module

    for name in names:
        add(name)
    return list(done.items())
