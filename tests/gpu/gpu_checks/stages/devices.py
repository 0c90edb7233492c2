# SPDX-License-Identifier: Apache-2.0
"""Stage `devices`: the devices process against NVML asked directly, idle and under load. It only reads."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpu_checks.report import Section
from gpu_checks.surroundings import Surroundings
from gpu_checks.target import Target, TargetError, wait_until
from hotstage.clock import SystemClock
from hotstage.config.settings import DevicesConfig
from hotstage.devices.parent import Devices
from hotstage.devices.samples import DevicesState

FIELDS = [
    "memory_used_bytes",
    "memory_total_bytes",
    "utilisation_ratio",
    "memory_busy_ratio",
    "power_watts",
    "power_limit_watts",
    "temperature_celsius",
    "sm_clock_hertz",
    "memory_clock_hertz",
    "energy_joules",
    "call_seconds",
]
IDLE_SECONDS, LOAD_SECONDS = 4.0, 6.0
MEMORY_TOLERANCE = 0.01
LOAD_BUSY = 0.5
SLOW_CALL_SECONDS = 0.02
"""The devices process makes no call that blocks for longer."""


def devices(at: Surroundings, section: Section) -> None:
    with (
        Target(
            at.driver_python, "nvml_calls", environment=at.program_environment, log=at.programs_log
        ) as nvml,
        sampled(at) as watched,
    ):
        identity = nvml.tell("identity")
        if "failure" in identity:
            section.not_run("NVML", identity["failure"])
            return
        wait_until(lambda: watched.row() is not None, "the first sample of the devices process", 15.0)
        who(watched, identity, section)
        time.sleep(1.0 if at.is_dry_run else IDLE_SECONDS)
        idle = watched.row()
        same_values(idle, nvml.tell("readings"), section)
        timings(nvml, section)
        section.table("idle", idle)
        if at.torch_python is None:
            section.not_run("readings under load", "no interpreter here has PyTorch")
        else:
            under_load(at, watched, nvml, idle, section)
        section.check(
            "the devices process was never started again", watched.restarts() == 0, f"{watched.restarts()}"
        )


class Watched:
    """The last sample, polled in a thread as the agent's tick does."""

    def __init__(self, parent: Devices) -> None:
        self._parent = parent
        self._lock = threading.Lock()
        self._sample = parent.poll()

    def poll(self) -> None:
        sample = self._parent.poll()
        with self._lock:
            self._sample = sample

    def row(self) -> dict[str, Any] | None:
        """GPU 0 by field, None for NaN; None before the first whole sample."""
        with self._lock:
            sample = self._sample
        if (
            sample.state is not DevicesState.sampling
            or not len(sample.rows)
            or not sample.rows["slow_at_ns"][0]
        ):
            return None
        row = sample.rows[0]
        values = {name: float(row[name]) for name in FIELDS}
        texts = {name: row[name].decode() for name in ("uuid", "name", "pci_bus_id")}
        return {
            **texts,
            "driver": sample.driver,
            "event_reasons": int(row["event_reasons"]),
            **{name: None if math.isnan(value) else value for name, value in values.items()},
        }

    def restarts(self) -> int:
        with self._lock:
            return self._sample.restarts


@contextmanager
def sampled(at: Surroundings) -> Iterator[Watched]:
    """The agent's own devices process, and its last sample."""
    directory = at.program_environment.get("LD_LIBRARY_PATH", "").partition(":")[0] or None
    config = DevicesConfig(library_directory=directory if at.is_dry_run else None)
    parent = Devices(config, SystemClock())
    watched, stop = Watched(parent), threading.Event()

    def work() -> None:
        while not stop.wait(0.1):
            watched.poll()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield watched
    finally:
        stop.set()
        thread.join(5)
        parent.close()


def who(watched: Watched, identity: dict[str, Any], section: Section) -> None:
    row = watched.row() or {}
    pairs = {
        "uuid": "gpu_uuid",
        "name": "gpu",
        "driver": "driver",
        "memory_total_bytes": "memory_total_bytes",
    }
    wrong = {
        own: (row.get(own), identity[other])
        for own, other in pairs.items()
        if row.get(own) != identity[other]
    }
    section.check("name, UUID, driver and memory are NVML's", not wrong, str(wrong or row.get("uuid")))
    unknown = [name for name in FIELDS if row.get(name) is None]
    section.figure("unknown_fields", len(unknown), "", f"not supported here: {', '.join(unknown) or 'none'}")


def same_values(row: dict[str, Any] | None, readings: dict[str, Any], section: Section) -> None:
    """Memory, which is exact and steady while nothing runs; the others are told side by side."""
    assert row is not None
    used, direct = row["memory_used_bytes"], readings["memory_used_bytes"]
    allowed = MEMORY_TOLERANCE * row["memory_total_bytes"]
    section.check("memory in use is NVML's", abs(used - direct) <= allowed, f"{used:.0f} and {direct} bytes")
    section.table("asked_directly", readings)


def timings(nvml: Target, section: Section) -> None:
    """What NVML's calls cost on this driver."""
    calls = nvml.tell("timings")["calls"]
    section.table("nvml_call_seconds", calls)
    supported = {name: each for name, each in calls.items() if each["error"] is None}
    for name, each in supported.items():
        section.figure(
            f"nvml {name}",
            each["median_seconds"] * 1e6,
            "µs",
            f"median; largest {each['max_seconds'] * 1e6:.0f} µs",
        )
    slow = [name for name, each in supported.items() if each["median_seconds"] > SLOW_CALL_SECONDS]
    section.check("no call blocks for 20 ms", bool(supported) and not slow, f"slow: {slow}")


def under_load(
    at: Surroundings, watched: Watched, nvml: Target, idle: dict[str, Any] | None, section: Section
) -> None:
    """A decoding process: memory and utilisation must rise."""
    assert at.torch_python is not None and idle is not None
    with Target(
        at.torch_python, "decode", environment=at.program_environment, log=at.programs_log
    ) as decoder:
        decoder.tell("start", within_seconds=90)
        rows: list[dict[str, Any]] = []
        busy = threading.Thread(target=decode, args=(decoder,))
        busy.start()
        gpm: dict[str, Any] = {}
        while busy.is_alive():
            row = watched.row()
            if row is not None:
                rows.append(row)
            if len(rows) == 12:
                gpm = nvml.tell("gpm")
            busy.join(0.25)
    top = {name: max((row[name] for row in rows if row[name] is not None), default=None) for name in FIELDS}
    section.table("largest_under_load", top)
    section.table("gpm", gpm)
    grown = (top["memory_used_bytes"] or 0) - (idle["memory_used_bytes"] or 0)
    section.check("memory in use rises under load", grown > 0, f"by {grown / 2**20:.0f} MiB")
    utilisation = top["utilisation_ratio"]
    section.check("utilisation rises under load", (utilisation or 0) >= LOAD_BUSY, f"to {utilisation}")
    for name, unit in (("utilisation_ratio", "ratio"), ("power_watts", "W"), ("sm_clock_hertz", "Hz")):
        section.figure(
            f"{name} under load", top[name], unit, f"largest of {len(rows)} readings; idle {idle[name]}"
        )


def decode(decoder: Target) -> None:
    try:
        decoder.tell("window", seconds=LOAD_SECONDS, graph=True)
    except TargetError:
        return  # the readings say that nothing ran
