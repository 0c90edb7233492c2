# SPDX-License-Identifier: Apache-2.0
"""Five small hosts, what goes wrong on each of them, and the monitoring that they share. Needs root.

slow      its image encoder takes 120 times as long; two peers serve the same endpoint
crowded   a server needs all that its cgroup allows; another one has a driver newer than the catalogue
peer      its lxcfs answers slowly, then not at all; the breaker page is deleted
idle      its only CUDA process ends; 1,100 breakers are held, and a client asks for all of them without pause
flooded   more requests end in each tick than the ring holds
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from hotstage.probes.catalogue.cuda_driver import CUDA_DRIVER
from hotstage.simhost import build
from hotstage.simhost.cgroup import Group, find_place
from support.alarms import Alarms, faster_rules, told_receiver
from support.children import do, started
from support.hosts import Host, new_host
from support.monitoring import end, prometheus, wait_for

SLOW_FROM_SECONDS = 12.0
"""Of traffic."""
BREAKERS = 1100
_MOUNT = Path(__file__).resolve().parents[1] / "bpf/hostile_mount.py"
_SERVER = "troublesome_server"
_READ_SECONDS = 0.3
_CROWDED_CORES = 0.2
_CROWDED_BYTES = 64 << 20
_PROBEABLE = 6
"""Functions of the new driver that can be probed; the others begin with what must not be."""


@dataclass
class FiveHosts:
    """The hosts by name, and what a test needs to break them."""

    alarms: Alarms
    hosts: dict[str, Host]
    programs: dict[str, subprocess.Popen[str]]
    lxcfs: subprocess.Popen[str]
    lxcfs_stat: Path
    new_driver: Path

    def fired(self) -> dict[tuple[str, str], list[dict[str, str]]]:
        """(host, alert) that fired in the last minutes, by Prometheus itself, with all labels of each."""
        by_target = {host.target: name for name, host in self.hosts.items()}
        found = self.alarms.prometheus.query_range('ALERTS{alertstate="firing"}', seconds=240)
        fired: dict[tuple[str, str], list[dict[str, str]]] = {}
        for each in found:
            key = (by_target[each.labels["instance"]], each.labels["alertname"])
            fired.setdefault(key, []).append(dict(each.labels))
        return fired

    def do(self, host: str, word: str) -> None:
        do(self.programs[host], word)

    def let_proc_be_slow(self) -> None:
        """From now on the agent of `peer` reads /proc/stat from an lxcfs that takes its time."""
        stat = self.hosts["peer"].proc / "stat"
        stat.unlink()
        stat.symlink_to(self.lxcfs_stat)

    def let_proc_hang(self) -> None:
        assert self.lxcfs.stdin and self.lxcfs.stdout
        print(file=self.lxcfs.stdin, flush=True)
        assert self.lxcfs.stdout.readline() == "frozen\n"

    def end_lxcfs(self) -> None:
        """Whoever waits for it gets an error."""
        print(file=self.lxcfs.stdin, flush=True)
        self.lxcfs.wait(10)

    @contextmanager
    def asked_without_pause(self) -> Iterator[threading.Event]:
        """A client asks the agent of `idle` for all breakers, again and again, while the event is set."""
        asking = threading.Event()
        asking.set()
        client = threading.Thread(target=_ask, args=(self.hosts["idle"].target, asking), daemon=True)
        client.start()
        try:
            yield asking
        finally:
            asking.clear()
            client.join(10)

    def fill_page(self) -> None:
        """As many orders for breakers of as many instances, as fast as the agent takes them."""
        client = self.hosts["idle"].client

        def order(number: int) -> None:
            client.request(
                "POST",
                f"/v1/breakers/instance:i-{number}/override",
                {"action": "metrics_only", "reason": "test", "ttl_seconds": 600.0},
            )

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(order, range(BREAKERS)))


def _ask(target: str, asking: threading.Event) -> None:
    connection = http.client.HTTPConnection(target, timeout=30)
    while asking.is_set():
        connection.request("GET", "/v1/breakers")
        connection.getresponse().read()
    connection.close()


@contextmanager
def five_hosts(directory: Path) -> Iterator[FiveHosts]:
    """Entered when all is attached and scraped, with traffic; nothing is wrong yet."""
    with ExitStack() as stack:
        hosts = {name: new_host(directory, name) for name in ("slow", "crowded", "peer", "idle", "flooded")}
        faults = {"slow": (f"encoder-stall@{SLOW_FROM_SECONDS:g}-600:120",)}
        traffic = [
            hosts[name].serve(stack, *faults.get(name, ()), seed=9311 + seed)
            for seed, name in enumerate(("slow", "crowded", "peer"))
        ]
        limited = _limited_group(stack)
        programs = {name: hosts[name].run(stack, _SERVER) for name in ("crowded", "idle", "flooded")}
        limited.take(programs["crowded"].pid)
        driver = build.lay_out(hosts["idle"].directory / "lib").libcuda
        do(programs["idle"], f"map:{driver}")
        lxcfs, mount = _lxcfs(stack, directory)
        differing = {
            "idle": {"breakers": {"max_breakers": 2 * BREAKERS}},
            "flooded": {"probes": {"events_ring_bytes": 16_384}},
        }
        for name, host in hosts.items():
            host.watch(stack, **differing.get(name, {}))
        for host in hosts.values():
            host.wait_attached("marks")
        router, told = stack.enter_context(told_receiver(directory))
        engine = stack.enter_context(
            prometheus(
                directory,
                [host.target for host in hosts.values()],
                rule_files=faster_rules(directory),
                alertmanager=router.url,
            )
        )
        wait_for(lambda: len(engine.query("hotstage_up == 1")) == len(hosts), "all to be scraped")
        for each in traffic:
            each.go()
        yield FiveHosts(
            Alarms(engine, told), hosts, programs, lxcfs, mount / "stat", _new_driver(directory / "new")
        )


def _limited_group(stack: ExitStack) -> Group:
    """A cgroup with limits as a container has them."""
    place = find_place(Path("/sys/fs/cgroup"), Path("/proc"))
    name = f"hotstage-test-{os.getpid()}"
    group = Group(place.is_v2, place.cpu / name, place.memory / name)
    group.make()
    stack.callback(wait_for, group.remove, "the cgroup to be empty", 10)
    group.limit(_CROWDED_CORES, _CROWDED_BYTES)
    return group


def _lxcfs(stack: ExitStack, directory: Path) -> tuple[subprocess.Popen[str], Path]:
    """A slow file system with one file, which looks as /proc/stat did a moment ago."""
    mount, source = directory / "lxcfs", directory / "stat"
    mount.mkdir()
    stack.callback(subprocess.run, ["umount", "-l", mount], check=False, stderr=subprocess.DEVNULL)
    source.write_bytes(Path("/proc/stat").read_bytes())
    command = [sys.executable, str(_MOUNT), str(mount), str(source), str(_READ_SECONDS)]
    process = started(stack, directory, "lxcfs", command)
    assert process.stdout and process.stdout.readline() == "ready\n"
    return process, mount


def _new_driver(folder: Path) -> Path:
    """A libcuda with the catalogue's names; most begin with an instruction that must not be probed."""
    folder.mkdir()
    names = sorted({symbol for call in CUDA_DRIVER.calls for symbol in call.symbols})
    code = [
        f".globl {name}\n.type {name}, @function\n{name}:\n"
        f"{'push %rbx; pop %rbx' if index < _PROBEABLE else '.byte 0x0f, 0x1f, 0x44, 0x00, 0x00'}\n"
        f"ret\n.size {name}, . - {name}\n"
        for index, name in enumerate(names)
    ]
    (folder / "driver.s").write_text(".text\n" + "".join(code))
    library = folder / "libcuda.so.1"
    command = ["gcc", "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-Wl,--build-id=sha1"]
    subprocess.run([*command, "-o", library, folder / "driver.s"], check=True, timeout=60)
    return library


def end_idle(five: FiveHosts) -> None:
    """The only CUDA process of `idle` ends, as when a server is taken out."""
    end(five.programs["idle"])
