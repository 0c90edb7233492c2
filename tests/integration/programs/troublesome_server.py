# SPDX-License-Identifier: Apache-2.0
"""A server process that does on command what alerts are for. `python troublesome_server.py libsimserver.so`.

Reads one word a line and says it back: `launch` kernels outside of any stage, from now on; `exhaust` the
device's memory once; `fail` some requests a second, from now on; `flood` the ring of finished requests, from
now on. Ends with its input.
"""

from __future__ import annotations

import contextlib
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

GPU = Gpu(Path(sys.argv[1]))
NUMBERS = itertools.count()


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


def serve(endpoint: str, outcome: str = "ok") -> None:
    """One request that begins and ends."""
    request = marks.request_begin(f"trouble-{next(NUMBERS)}", endpoint=endpoint, instance="troublesome")
    request.end(outcome)


def exhaust() -> None:
    with contextlib.suppress(GpuError):
        GPU.run(work(1, 1 << 40), 1.0)


def flood() -> None:
    for _ in range(400):
        serve("/v1/flood")


def without_end(act: Callable[[], None], pause_seconds: float) -> None:
    def repeat() -> None:
        GPU.open_thread()
        while True:
            act()
            time.sleep(pause_seconds)

    threading.Thread(target=repeat, daemon=True).start()


def main() -> None:
    GPU.open(weight_bytes=1 << 20, graph_nodes=1)
    GPU.open_thread()
    print("ready", flush=True)
    for line in sys.stdin:
        match line.strip():
            case "launch":
                without_end(lambda: GPU.run(work(200, 4096), 1.0), 0.02)
            case "exhaust":
                exhaust()
            case "fail":
                without_end(lambda: serve("/v1/failing", "error"), 0.2)
            case "flood":
                without_end(flood, 0.05)
        print(line.strip(), flush=True)


if __name__ == "__main__":
    main()
