# SPDX-License-Identifier: Apache-2.0
"""What a user may really do, by the agent's own code, as JSON: run it with fewer rights and compare.

python feature_truth.py VICTIM_PID CLOSED_LIBRARY DELETED_LIBRARY
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from hotstage.errors import HotstageError
from hotstage.probes.discovery.libraries import close_library, is_library, open_library
from hotstage.probes.discovery.processes import ProcessTable
from hotstage.probes.discovery.sideband import Sideband
from hotstage.probes.loader.base import MapSizes, Rung
from hotstage.probes.loader.libbpf import OBJECTS, LibbpfLoader
from hotstage.probes.loader.raw_tracepoint import load_raw_tracepoint
from hotstage.probes.xid import MAPS

PROC = Path("/proc")


def works(act: Callable[[], object]) -> bool:
    try:
        act()
    except (HotstageError, OSError, LookupError):
        return False
    return True


def load(rung: Rung | None) -> None:
    loader = LibbpfLoader()
    try:
        loader.load(MapSizes(), rung)
    finally:
        loader.close()


def watch_kernel_lines() -> None:
    fds, _ = load_raw_tracepoint(OBJECTS / "xid.bpf.o", "console_line", "console", MAPS)
    for fd in fds:
        os.close(fd)


def open_mapped(pid: int, path: str) -> None:
    """As discovery does: find the mapping, open the file through the process."""
    view = ProcessTable(PROC).look(pid, is_library)
    mapping = next(mapping for mapping in view.mappings if mapping.path == path) if view else None
    if mapping is None:
        raise LookupError("its mappings may not be read")
    close_library(open_library(PROC, pid, mapping))


def main() -> None:
    pid, closed, deleted = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    print(
        json.dumps(
            {
                "count calls": works(lambda: load(None)),
                "count calls on rung P": works(lambda: load(Rung.PERF)),
                "notice new libraries": works(lambda: Sideband().close()),
                "XID lines of the kernel log": works(watch_kernel_lines),
                "processes of other users": works(lambda: list((PROC / str(pid) / "root").iterdir())),
                "libraries behind file permissions": works(lambda: open_mapped(pid, closed)),
                "libraries that are probed already": works(
                    lambda: (PROC / str(pid) / "mem").open("rb").close()
                ),
                "deleted libraries": works(lambda: open_mapped(pid, deleted)),
            }
        )
    )


if __name__ == "__main__":
    main()
