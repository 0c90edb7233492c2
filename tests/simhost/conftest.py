# SPDX-License-Identifier: Apache-2.0
"""Whole runs of the simulated host, spoken to by its protocol."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from hotstage.simhost.truth import calls_made


class Run:
    """One host process; every wait has a deadline and says what it waited for."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.events: list[dict[str, Any]] = []
        self._arrived: Queue[dict[str, Any] | None] = Queue()
        command = [sys.executable, "-m", "hotstage.simhost.host", "--directory", str(folder), *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._arrived.put(json.loads(line))
        self._arrived.put(None)

    def until(self, event: str, seconds: float = 15.0, **fields: Any) -> dict[str, Any]:
        while True:
            try:
                message = self._arrived.get(timeout=seconds)
            except Empty:
                pytest.fail(f"waited {seconds:g} s for {event!r}, had {self.events}")
            if message is None:
                pytest.fail(f"ended before {event!r}: {self.process.stderr.read()}")
            self.events.append(message)
            if message["event"] == event and fields.items() <= message.items():
                return message

    def say(self, command: str) -> None:
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    @property
    def pids(self) -> list[int]:
        return [event["pid"] for event in self.events if event["event"] == "instance"]

    def until_truth(self) -> dict[str, Any]:
        """Of a run that stops by itself, or was told to."""
        return json.loads(Path(self.until("stopped", 30.0)["truth"]).read_text())

    def calls(self) -> dict[str, int]:
        """What the servers' libraries have counted until now, without what no one called."""
        total: Counter[str] = Counter()
        for pid in self.pids:
            total.update(calls_made(self.folder / "lib" / f"truth-{pid}"))
        return dict(total)

    def finish(self) -> dict[str, Any]:
        """Wait for the end of a run that has `--seconds`, end another; read the truth; let all exit."""
        if "--seconds" not in self.process.args:
            self.say("stop")
        truth = self.until_truth()
        self.say("exit")
        assert self.process.wait(10) == 0
        return truth

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(5)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()


class Starter:
    """Call it for a host that waits for `go`; it ends all that it has started."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._runs: list[Run] = []

    def __call__(self, *arguments: str) -> Run:
        run = self.begin(*arguments)
        run.until("waiting")
        return run

    def begin(self, *arguments: str) -> Run:
        """As a call, without waiting until it waits."""
        folder = self._place / f"run-{len(self._runs)}"
        folder.mkdir()
        self._runs.append(Run(folder, *arguments))
        return self._runs[-1]

    def close(self) -> None:
        for run in self._runs:
            run.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(tmp_path)
    yield starter
    starter.close()
