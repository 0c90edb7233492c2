# SPDX-License-Identifier: Apache-2.0
"""The devices process, `python -m hotstage.devices.process --period 1`: loads NVML, writes records to stdout.

It gives up all privileges and has nothing to keep: the agent ends it, abandons it or starts it again at will.
It ends by itself when nobody reads any more.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections import deque

from hotstage.devices.nvml import Device, NvmlGoneError, XidEvents, close_nvml, open_nvml
from hotstage.devices.sampler import Sampler
from hotstage.devices.wire import RecordKind, Status, pack
from hotstage.privileges import give_up_capabilities

_OUTPUT = 1


def main() -> int:
    """Exit status: 0 the reader has gone or a signal came, 3 no NVML, 4 NVML does not work (any more)."""
    parser = argparse.ArgumentParser(prog="hotstage-devices")
    parser.add_argument("--period", type=float, default=1.0, help="seconds between two slow rounds")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return _run(arguments.period)
    except (BrokenPipeError, SystemExit):
        return 0


def _run(period_seconds: float) -> int:
    driver = ""
    try:
        give_up_capabilities()
    except OSError as error:
        _tell(Status.refused, 0, driver, f"capabilities could not be given up: {error}")
        return 4
    try:
        opened = open_nvml()
        driver = opened.driver
        _tell(Status.working, len(opened.devices), driver, "; ".join(opened.refused))
        _sample_for_ever(opened.devices, period_seconds)
    except NvmlGoneError as error:
        _tell(error.status, 0, driver, error.reason)
        return 3 if error.status is Status.no_library else 4
    finally:
        close_nvml()
    return 0


def _sample_for_ever(devices: list[Device], period_seconds: float) -> None:
    sampler = Sampler(devices, period_seconds)
    xids: deque[tuple[int, str, int]] = deque(maxlen=256)
    threading.Thread(target=_watch_xids, args=(devices, xids), daemon=True).start()
    while True:
        _write(sampler.round(time.monotonic_ns()))
        while xids:
            at_ns, bus, xid = xids.popleft()
            _write(pack(RecordKind.xid, (at_ns, xid, bus.encode())))
        time.sleep(sampler.pause_seconds)


def _watch_xids(devices: list[Device], xids: deque[tuple[int, str, int]]) -> None:
    """A thread of its own, since waiting for events blocks; ends where the driver has none to give."""
    events = XidEvents(devices)
    while True:
        try:
            event = events.wait()
        except NvmlGoneError:
            return
        if event is not None:
            xids.append((time.monotonic_ns(), *event))


def _tell(status: Status, gpus: int, driver: str, reason: str) -> None:
    values = (time.monotonic_ns(), status, gpus, driver.encode(), reason.encode("ascii", "replace"))
    _write(pack(RecordKind.state, values))


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(_OUTPUT, data) :]


if __name__ == "__main__":
    sys.exit(main())
