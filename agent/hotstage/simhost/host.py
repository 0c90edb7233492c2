# SPDX-License-Identifier: Apache-2.0
"""The simulated GPU host: libraries, GPUs, two server processes, faults in time, the truth at the end.

`python -m hotstage.simhost.host --directory D`. Speaks JSON lines on its output, obeys `go`, `stop` and
`exit` on its input; ends with everything it started when the input closes. Never imports what watches it.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from hotstage.errors import HotstageError, PeerError
from hotstage.simhost import build, faults, truth
from hotstage.simhost.gpus import GPUS, GpuModel, log_xid
from hotstage.simhost.instance import Instance, start_instance
from hotstage.simhost.options import HostOptions, parse_options
from hotstage.simhost.page import PAGE_FILE, Page, shared_page
from hotstage.simhost.quota import QUOTAS, Quotas
from hotstage.simhost.server import DRAIN_SECONDS

TICK_SECONDS = 0.25
READY_SECONDS = 20.0
START_DELAY_NS = 100_000_000
FREEZE_SECONDS = 0.05


class Host:
    """One run, from the libraries to the truth file."""

    def __init__(self, options: HostOptions, page: Page, stubs: build.StubPaths, quotas: Quotas) -> None:
        self._options = options
        self._page = page
        self._stubs = stubs
        self._quotas = quotas
        self._model = GpuModel(page)
        self._start_ns = 0
        self._stopped_ns: int | None = None
        self._instances: list[Instance] = []
        self._due: list[tuple[int, Callable[[], None]]] = []

    def start_instances(self) -> None:
        """Start the servers; they have mapped their libraries and made no CUDA call when this returns."""
        self._instances = [start_instance(index, self._options, self._stubs) for index in range(len(GPUS))]
        for instance in self._instances:
            ready = instance.answer("ready", READY_SECONDS)
            instance.pid, instance.health_port = ready["pid"], ready["health_port"]
            say(
                "instance",
                pid=instance.pid,
                instance=instance.name,
                health_port=instance.health_port,
                gpu_uuid=GPUS[instance.index].uuid,
                pci_bus_id=GPUS[instance.index].pci_bus_id,
            )
            self._limit(instance)

    def go(self) -> None:
        """Traffic starts in a moment."""
        self._start_ns = time.monotonic_ns() + START_DELAY_NS
        for instance in self._instances:
            instance.send(f"go {self._start_ns}")
        self._due = sorted(self._actions(), key=lambda action: action[0])
        say("traffic", start_ns=self._start_ns)

    def tick(self) -> None:
        """Carry out what is due, move the GPUs' readings, notice dead servers."""
        now_ns = time.monotonic_ns()
        while self._due and self._due[0][0] <= now_ns and self._stopped_ns is None:
            self._due.pop(0)[1]()
        if self._stopped_ns is None:
            self._model.advance(now_ns)
            for name, quota in self._quotas.relieve().items():
                say("quota", instance=name, **asdict(quota))
        for instance in self._instances:
            if instance.process.poll() is not None and not instance.is_reported_dead:
                instance.is_reported_dead = True
                say("died", pid=instance.pid, instance=instance.name, code=instance.process.returncode)

    @property
    def is_over(self) -> bool:
        """The time given on the command line has passed."""
        seconds = self._options.seconds
        return (
            seconds is not None
            and bool(self._start_ns)
            and time.monotonic_ns() > self._start_ns + int(seconds * 1e9)
        )

    @property
    def next_seconds(self) -> float:
        """Until the next tick must be."""
        if not self._due or self._stopped_ns is not None:
            return TICK_SECONDS
        return min(TICK_SECONDS, max(0.0, (self._due[0][0] - time.monotonic_ns()) / 1e9))

    def stop(self) -> None:
        """End the traffic and write the truth; no CUDA call is made after it was read."""
        if self._stopped_ns is not None:
            return
        self._stopped_ns = time.monotonic_ns()
        self._quotas.lift()
        path = self._options.directory / "truth.json"
        for instance in self._instances:
            instance.send("stop")
        reports = [report for instance in self._instances if (report := self._report_of(instance))]
        self._freeze()
        files = {instance.pid: self._stubs.folder / f"truth-{instance.pid}" for instance in self._instances}
        truth.write(
            path,
            seed=self._options.seed,
            calls_by_pid={pid: truth.calls_made(file) for pid, file in files.items()},
            launches=[row for file in files.values() for row in truth.launches_made(file)],
            kernels=sum(map(truth.kernels_run, files.values())),
            servers=reports,
            faults=self._fault_records(),
        )
        say("stopped", truth=str(path))

    def close(self) -> None:
        """End the servers: by closing their input, then by force."""
        for instance in self._instances:
            instance.close_input()
        for instance in self._instances:
            instance.close()

    def _limit(self, instance: Instance) -> None:
        """Give a server that has started its quota; starting takes more than serving."""
        quota = QUOTAS[instance.index].times(self._options.calls_scale)
        try:
            self._quotas.impose(instance.name, instance.pid, quota)
        except OSError as error:
            say("warning", message=f"{instance.name} may use all of the machine, no cgroup for it: {error}")
        else:
            say("quota", instance=instance.name, **asdict(quota))

    def _freeze(self) -> None:
        """Whoever still waits for a GPU goes on waiting, so that what follows the wait is never called."""
        for device in self._page.devices:
            device.hang = 1
        time.sleep(FREEZE_SECONDS)

    def _report_of(self, instance: Instance) -> dict[str, Any] | None:
        try:
            instance.answer("stopped", DRAIN_SECONDS + 5.0)
            report: dict[str, Any] = json.loads(instance.report.read_text())
        except (PeerError, OSError, ValueError) as error:
            say("warning", message=f"{instance.name} left no report: {error}")
            return None
        return report

    def _actions(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """(when, what) of every fault: the hooks of hang and XID, and a line about each."""
        for fault in self._options.faults:
            began_ns = self._start_ns + int(fault.start_seconds * 1e9)
            ended_ns = self._start_ns + int(fault.end_seconds * 1e9)
            yield began_ns, partial(self._begin, fault)
            yield ended_ns, partial(self._end, fault)

    def _begin(self, fault: faults.Fault) -> None:
        index = int((fault.instance or "i-0").removeprefix("i-"))
        if fault.kind == "alive_but_hung":
            self._page.devices[index].hang = 1
        if fault.kind == "gpu_xid":
            self._model.fail(index, int(fault.severity))
            self._page.raise_xid(index, int(fault.severity), time.monotonic_ns())
            try:
                log_xid(GPUS[index], int(fault.severity), self._instances[index].pid)
            except OSError as error:
                say("warning", message=f"the XID is in NVML only, /dev/kmsg: {error.strerror}")
        if fault.kind == "cpu_starvation":
            self._starve(fault, index)
        say("fault", name=fault.name, state="began", at_ns=time.monotonic_ns())

    def _end(self, fault: faults.Fault) -> None:
        index = int((fault.instance or "i-0").removeprefix("i-"))
        if fault.kind == "alive_but_hung":
            self._page.devices[index].hang = 0
        if fault.kind == "gpu_xid":
            self._model.reset(index)
        if fault.kind == "cpu_starvation":
            with suppress(KeyError, OSError):  # it could not be starved either
                self._quotas.feed(self._instances[index].name)
        say("fault", name=fault.name, state="ended", at_ns=time.monotonic_ns())

    def _starve(self, fault: faults.Fault, index: int) -> None:
        try:
            self._quotas.starve(self._instances[index].name, max(fault.severity, 1.0))
        except (KeyError, OSError) as error:
            say("warning", message=f"{self._instances[index].name} has no cgroup to be starved in: {error}")

    def _fault_records(self) -> list[dict[str, Any]]:
        if not self._start_ns:
            return []
        entities = {
            instance.name: {
                "gpu_uuid": GPUS[instance.index].uuid,
                "pci_bus_id": GPUS[instance.index].log_bus_id,
            }
            for instance in self._instances
        }
        records = (
            truth.fault_record(
                fault,
                start_ns=self._start_ns,
                traffic_end_ns=self._stopped_ns or time.monotonic_ns(),
                entities=entities,
            )
            for fault in self._options.faults
        )
        return [record for record in records if record is not None]


def say(event: str, **fields: Any) -> None:
    """One line of the protocol."""
    print(json.dumps({"event": event, **fields}), flush=True)


def obey(host: Host) -> None:
    """Read commands and tick until `exit` or the end of the input."""
    descriptor = sys.stdin.fileno()
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if selector.select(host.next_seconds):
                chunk = os.read(descriptor, 4096)
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    command = line.strip()
                    if command == b"go":
                        host.go()
                    elif command == b"stop":
                        host.stop()
                    elif command == b"exit":
                        return
                if not chunk:
                    return
            host.tick()
            if host.is_over:
                host.stop()


def run(options: HostOptions) -> None:
    """One whole run. Everything made beside the truth file is removed at the end."""
    folder = options.directory / "lib"
    with ExitStack() as stack:
        stubs = build.lay_out(folder)
        stack.callback(_remove, folder)
        page = stack.enter_context(shared_page(folder / PAGE_FILE))
        quotas = Quotas()
        stack.callback(quotas.close)
        host = Host(options, page, stubs, quotas)
        stack.callback(host.close)
        say(
            "libraries",
            folder=str(folder),
            libcuda=str(stubs.libcuda),
            libcudart=str(stubs.libcudart),
            libnvidia_ml=str(stubs.libnvidia_ml),
        )
        host.start_instances()
        say("waiting")
        obey(host)


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink(missing_ok=True)
    folder.rmdir()


def _interrupted(_signal: int, _frame: object) -> None:
    raise SystemExit(130)


def main() -> None:
    signal.signal(signal.SIGTERM, _interrupted)
    # A Ctrl-C reaches the whole process group: whoever speaks the protocol decides what it means.
    signal.signal(signal.SIGINT, _interrupted if sys.stdin.isatty() else signal.SIG_IGN)
    try:
        run(parse_options(sys.argv[1:]))
    except HotstageError as error:
        remedy = f" ({error.remedy})" if error.remedy else ""
        print(f"simhost: {error.message}{remedy}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
