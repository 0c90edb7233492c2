# SPDX-License-Identifier: Apache-2.0
"""The agent's side of the devices process: starts it, reads what it says without waiting, replaces it.

A process stuck in the driver cannot even be killed: it is sent SIGKILL, let go, and another one is started
after a pause that doubles. The tick never waits for any of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from hotstage.clock import Clock
from hotstage.config.settings import DevicesConfig
from hotstage.devices.samples import DEVICE_DTYPE, DeviceSample, DevicesState, no_devices
from hotstage.devices.wire import RecordKind, RecordReader, Status, unpack
from hotstage.probes.samples import XidEvent

COMMAND = (sys.executable, "-m", "hotstage.devices.process")

_FIRST_PAUSE_NS = 1_000_000_000
_LONGEST_PAUSE_NS = 60_000_000_000
_PROVEN_NS = 60_000_000_000
_READ_BYTES = 1 << 16
_READS_MAX = 16
_FRESH_PERIODS = 3.0
_ABANDONED_MAX = 8
_UUID_BYTES = DEVICE_DTYPE["uuid"].itemsize


class Devices:
    """`poll` on the tick, `close` at the end. Not thread-safe."""

    def __init__(self, config: DevicesConfig, clock: Clock, command: Sequence[str] = COMMAND) -> None:
        self._config = config
        self._clock = clock
        self._command = (*command, "--period", str(config.period_seconds))
        self._hang_after_ns = round(config.hang_after_seconds * 1e9)
        self._child: subprocess.Popen[bytes] | None = None
        self._reader = RecordReader()
        self._has_said_all = False
        self._rows: dict[bytes, bytes] = {}  # UUID → its DEVICE_DTYPE row
        self._table: np.ndarray[tuple[int], np.dtype[np.void]] | None = None  # of `_rows`, until they change
        self._state, self._reason = DevicesState.starting, "not started yet"
        self._driver = ""
        self._xids: list[XidEvent] = []
        self._heard_ns = self._started_ns = 0
        self._pause_ns, self._start_at_ns = _FIRST_PAUSE_NS, 0
        self._abandoned: list[subprocess.Popen[bytes]] = []
        self.restarts = 0

    def poll(self) -> DeviceSample:
        """What has been said by now. Starts or replaces the process when that is due; never blocks."""
        now_ns = self._clock.monotonic_ns()
        if not self._config.enabled:
            return no_devices(now_ns, DevicesState.disabled, "switched off by devices.enabled")
        if self._abandoned:
            self._abandoned = [child for child in self._abandoned if child.poll() is None]
        if self._child is None:
            if now_ns >= self._start_at_ns:
                self._start(now_ns)
        else:
            self._read(now_ns)
            self._judge(now_ns)
        return self._sample(now_ns)

    def owns(self, pid: int) -> bool:
        """Whether `pid` is a devices process, given up or not; any thread may ask."""
        children = (self._child, *self._abandoned)
        return any(child is not None and child.pid == pid for child in children)

    def close(self) -> None:
        """End the process, and reap what was abandoned; one that is stuck in the driver is left behind."""
        child, self._child = self._child, None
        if child is not None:
            child.terminate()
            if not _has_ended(child, 1.0):
                child.kill()
                _has_ended(child, 0.5)
            assert child.stdout is not None
            child.stdout.close()
        self._abandoned = [each for each in self._abandoned if not _has_ended(each, 0.5)]

    def _start(self, now_ns: int) -> None:
        try:
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=child_environment(self._config.library_directory, os.environ),
            )
        except OSError as error:
            self._fail(now_ns, DevicesState.failed, f"the devices process does not start: {error}")
            return
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)
        self._reader, self._has_said_all = RecordReader(), False
        self._heard_ns = self._started_ns = now_ns

    def _read(self, now_ns: int) -> None:
        assert self._child is not None and self._child.stdout is not None
        for _ in range(_READS_MAX):
            try:
                data = os.read(self._child.stdout.fileno(), _READ_BYTES)
                records = self._reader.feed(data)
            except BlockingIOError:
                return
            except ValueError as error:
                self._abandon(now_ns, DevicesState.failed, str(error))
                return
            if not data:
                self._has_said_all = True
                return
            self._heard_ns = now_ns
            for kind, record in records:
                self._take(kind, record)

    def _take(self, kind: RecordKind, record: bytes) -> None:
        if kind is RecordKind.device:  # ten times a second of each GPU: the record is the row
            self._rows[record[:_UUID_BYTES].rstrip(b"\0")] = record
            self._table = None
            return
        values = unpack(kind, record)
        if kind is RecordKind.xid:
            bus = _text(values["pci_bus_id"])
            xid = int(values["xid"])
            self._xids.append(XidEvent(int(values["at_ns"]), bus, xid, f"NVML reports XID {xid}", "nvml"))
        else:
            status = Status(int(values["status"]))
            self._reason = _text(values["reason"])
            self._driver = _text(values["driver"])
            self._state = _STATES[status]
            self._rows.clear()
            self._table = None

    def _judge(self, now_ns: int) -> None:
        """Has it ended, or hung, or proven itself?"""
        if self._child is None:
            return
        # Its output ends with it, so the kernel need not be asked on every tick.
        code = self._child.poll() if self._has_said_all else None
        if code is not None:
            state = self._state if self._state is DevicesState.no_library else DevicesState.failed
            reason = self._reason or f"the devices process ended with status {code}"
            if state is DevicesState.no_library:
                self._pause_ns = _LONGEST_PAUSE_NS
            self._fail(now_ns, state, reason)
        elif now_ns - self._heard_ns > self._hang_after_ns:
            seconds = (now_ns - self._heard_ns) / 1e9
            self._abandon(now_ns, DevicesState.hung, f"NVML has not answered for {seconds:.0f} s")
        elif self._state is DevicesState.sampling and now_ns - self._started_ns > _PROVEN_NS:
            self._pause_ns = _FIRST_PAUSE_NS

    def _abandon(self, now_ns: int, state: DevicesState, reason: str) -> None:
        assert self._child is not None
        self._child.kill()
        self._abandoned = [*self._abandoned, self._child][-_ABANDONED_MAX:]
        self._fail(now_ns, state, reason)

    def _fail(self, now_ns: int, state: DevicesState, reason: str) -> None:
        if self._child is not None and self._child.stdout is not None:
            self._child.stdout.close()
        self._child = None
        self._state, self._reason = state, reason
        self._start_at_ns = now_ns + self._pause_ns
        self._pause_ns = min(2 * self._pause_ns, _LONGEST_PAUSE_NS)
        self.restarts += 1

    def _sample(self, now_ns: int) -> DeviceSample:
        xids, self._xids = tuple(self._xids), []
        if self._table is None:
            ordered = [self._rows[uuid] for uuid in sorted(self._rows)]
            self._table = np.frombuffer(b"".join(ordered), DEVICE_DTYPE)
        rows = self._table
        allowed_ns = round(_FRESH_PERIODS * max(self._config.period_seconds, 1.0) * 1e9)
        return DeviceSample(
            at_ns=now_ns,
            state=self._state,
            reason=self._reason,
            rows=rows,
            driver=self._driver,
            xids=xids,
            restarts=self.restarts,
            is_fresh=self._state is DevicesState.sampling and now_ns - self._heard_ns <= allowed_ns,
        )


_STATES = {
    Status.working: DevicesState.sampling,
    Status.no_library: DevicesState.no_library,
    Status.refused: DevicesState.failed,
}


def _has_ended(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it ended, at the latest after that time; it is reaped then."""
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def child_environment(library_directory: str | None, inherited: Mapping[str, str]) -> dict[str, str]:
    """The child finds libnvidia-ml.so.1 in `library_directory` first."""
    environment = dict(inherited)
    if library_directory:
        before = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = library_directory + (f":{before}" if before else "")
    return environment


def _text(value: bytes | float | int) -> str:
    return value.split(b"\0", 1)[0].decode("ascii", "replace") if isinstance(value, bytes) else str(value)
