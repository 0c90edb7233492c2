# SPDX-License-Identifier: Apache-2.0
"""A server process that does on command what alerts are for. `python troublesome_server.py [libsimserver.so]`

Reads one word a line and says it back. From then on: `launch` kernels outside of any stage, `fail` some
requests a second, `flood` the ring of finished requests, `crowd`: take all CPU and memory that it gets. Once:
`exhaust` the device's memory, `map:PATH` a library. Ends with its input; without libsimserver it has no GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import hotstage_marks as marks
from hotstage.simhost.gpu import Gpu, GpuError
from hotstage.simhost.service import StageWork
from hotstage.stages.stage import Modality, Stage

GPU = Gpu(Path(sys.argv[1])) if len(sys.argv) > 1 else None
NUMBERS = itertools.count()
CROWD_BYTES = 40 << 20
HELD: list[object] = []
"""What is to stay in memory."""


def work(launches: int, device_bytes: int) -> StageWork:
    return StageWork(
        stage=Stage.vision_encode,
        modality=Modality.image,
        seconds=1e-4,
        tokens=1,
        launches=launches,
        copies=1,
        input_bytes=4096,
        device_bytes=device_bytes,
    )


def serve(endpoint: str, outcome: str = "ok", seconds: float = 0.0) -> None:
    """One request that begins and ends."""
    request = marks.request_begin(f"trouble-{next(NUMBERS)}", endpoint=endpoint, instance="troublesome")
    time.sleep(seconds)
    request.end(outcome)


def launch(launches: int, device_bytes: int = 4096) -> None:
    assert GPU is not None, "started without a library"
    GPU.run(work(launches, device_bytes), 1.0)


def exhaust() -> None:
    with contextlib.suppress(GpuError):
        launch(1, 1 << 40)


def flood() -> None:
    """More than a ring of 16 KiB holds, and so few that one of the usual size lasts for seconds."""
    for _ in range(30):
        serve("/v1/flood")


def crowd() -> None:
    """Pre-processing that takes what the limits allow, and a request now and then."""
    HELD.append(b"x" * CROWD_BYTES)
    without_end(lambda: sum(range(10_000)), 0.0)
    without_end(lambda: serve("/v1/crowded", seconds=0.3), 0.2)


def without_end(act: Callable[[], object], pause_seconds: float) -> None:
    def repeat() -> None:
        if GPU is not None:
            GPU.open_thread()
        while True:
            act()
            time.sleep(pause_seconds)

    threading.Thread(target=repeat, daemon=True).start()


def main() -> None:
    if GPU is not None:
        GPU.open(weight_bytes=1 << 20, graph_nodes=1)
        GPU.open_thread()
    serve("/v1/first")
    print("ready", flush=True)
    for line in sys.stdin:
        match line.strip().split(":"):
            case ["launch"]:
                without_end(lambda: launch(200), 0.02)
            case ["exhaust"]:
                exhaust()
            case ["fail"]:
                without_end(lambda: serve("/v1/failing", "error"), 0.2)
            case ["flood"]:
                without_end(flood, 0.02)
            case ["crowd"]:
                crowd()
            case ["map", path]:
                HELD.append(ctypes.CDLL(path))
        print(line.strip(), flush=True)


if __name__ == "__main__":
    main()
