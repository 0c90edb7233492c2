# SPDX-License-Identifier: Apache-2.0
"""NVML asked in a process of its own, with a deadline: it can hang in the driver, and doctor must not.

A process that does not even die of SIGKILL (stuck in the driver) is left to the kernel.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hotstage.cli.doctor.host import Host
from hotstage.devices.parent import child_environment

COMMAND = (sys.executable, "-m", "hotstage.devices.survey")
DEADLINE_SECONDS = 2.0
_LINES_BYTES_MAX = 1 << 20
_STATUS_NO_LIBRARY = 3


@dataclass(slots=True)
class Gpu:
    """One GPU as NVML tells it; `readings` are the lines of `devices/survey.py`, None: not told in time."""

    index: int
    uuid: str
    name: str
    bus: str
    readings: dict[str, dict[str, Any]] = field(default_factory=dict)
    mig: bool | None = None
    persistence: bool | None = None
    is_lost: bool = False


@dataclass(slots=True)
class Survey:
    """`hangs_in` names the call that did not come back; `reason` is NVML's own when it refuses."""

    library: str | None = None
    version: str | None = None
    driver: str | None = None
    init_seconds: float | None = None
    gpus: dict[int, Gpu] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    """GPUs that NVML lists and does not open, each with its reason."""
    has_library: bool = True
    reason: str | None = None
    hangs_in: str | None = None
    not_started: str | None = None
    """Why the child could not be started at all; nothing is known then."""


def survey_gpus(
    host: Host, command: tuple[str, ...] = COMMAND, deadline_seconds: float = DEADLINE_SECONDS
) -> Survey:
    """A trial for `Host.once`."""
    directory = host.config.devices.library_directory
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(directory, host.environment or os.environ),
        )
    except OSError as error:
        return Survey(not_started=f"{command[0]}: {error.strerror}")
    survey, calling, has_ended = Survey(), "its start", False
    try:
        for line in _lines(child, deadline_seconds):
            if line["event"] == "calling":
                gpu = "" if line["gpu"] is None else f" of GPU {line['gpu']}"
                calling = f"{line['call']}{gpu}"
            has_ended |= line["event"] == "end"
            _take(survey, line)
        if not has_ended:
            survey.hangs_in = calling
    finally:
        child.kill()
        assert child.stdout is not None
        child.stdout.close()
    try:
        survey.has_library = child.wait(0.2) != _STATUS_NO_LIBRARY
    except subprocess.TimeoutExpired:
        survey.has_library = True  # stuck in the driver: not even SIGKILL ends it now
    return survey


def _take(survey: Survey, line: dict[str, Any]) -> None:
    match line:
        case {"event": "library"}:
            survey.library, survey.version = line["path"], line["version"]
            survey.driver, survey.init_seconds = line["driver"], line["seconds"]
            survey.refused = line["refused"]
        case {"event": "gpu", "index": int(index)}:
            survey.gpus[index] = Gpu(index, line["uuid"], line["name"], line["bus"])
        case {"event": "value", "gpu": int(index)}:
            survey.gpus[index].readings[line["name"]] = line
        case {"event": "modes", "gpu": int(index)}:
            gpu = survey.gpus[index]
            gpu.mig, gpu.persistence, gpu.is_lost = line["mig"], line["persistence"], line["lost"]
        case {"event": "end"}:
            survey.reason = line["reason"]


def _lines(child: subprocess.Popen[bytes], deadline_seconds: float) -> Iterator[dict[str, Any]]:
    """Lines until the end of output or the deadline, whichever comes first."""
    assert child.stdout is not None
    end = time.monotonic() + deadline_seconds
    fd, pending, total = child.stdout.fileno(), b"", 0
    while total < _LINES_BYTES_MAX:
        readable, _, _ = select.select([fd], [], [], max(end - time.monotonic(), 0.0))
        if not readable:
            return
        data = os.read(fd, 1 << 16)
        if not data:
            return
        total += len(data)
        *whole, pending = (pending + data).split(b"\n")
        for line in whole:
            yield json.loads(line)
