# SPDX-License-Identifier: Apache-2.0
"""The dry run's stand-in for a GPU: hotstage's simulated CUDA and NVML libraries, with readings that move."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hotstage.simhost import build
from hotstage.simhost.gpus import GPUS, GpuModel
from hotstage.simhost.page import PAGE_FILE, shared_page

_TICK_SECONDS = 0.25


@contextmanager
def simulated_libraries(folder: Path) -> Iterator[Path]:
    """The folder that programs must find their libraries in. Raises PreflightError without a compiler."""
    stubs = build.lay_out(folder)
    with shared_page(stubs.folder / PAGE_FILE) as page:
        model, stop = GpuModel(page, GPUS[:1]), threading.Event()

        def work() -> None:
            while not stop.wait(_TICK_SECONDS):
                model.advance(time.monotonic_ns())

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield stubs.folder
        finally:
            stop.set()
            thread.join(5)
