# SPDX-License-Identifier: Apache-2.0
"""Messages to the service manager, read from a socket that stands for it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotstage import service
from hotstage.service import NoManager, Systemd, service_manager


class Manager:
    """The manager's end of the socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(2)

    def heard(self) -> dict[str, str]:
        message = self.socket.recv(4096).decode()
        return dict(line.split("=", 1) for line in message.split("\n"))

    def is_silent(self) -> bool:
        self.socket.setblocking(False)
        try:
            self.socket.recv(4096)
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(2)
        return False


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@hotstage-test-{os.getpid()}"
    made = Manager(address)
    yield made
    made.socket.close()


def test_ready_comes_with_what_is_attached(manager: Manager) -> None:
    service_manager({"NOTIFY_SOCKET": manager.address}).ready("12 points in 2 processes")
    assert manager.heard() == {"READY": "1", "STATUS": "12 points in 2 processes"}


def test_a_reload_carries_the_time_of_its_beginning(manager: Manager) -> None:
    before = time.monotonic_ns() // 1000
    service_manager({"NOTIFY_SOCKET": manager.address}).reloading()
    heard = manager.heard()
    assert heard["RELOADING"] == "1"
    assert before <= int(heard["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000


def test_the_end_is_told(manager: Manager) -> None:
    service_manager({"NOTIFY_SOCKET": manager.address}).stopping()
    assert manager.heard() == {"STOPPING": "1"}


def test_a_status_is_told_when_it_differs(manager: Manager) -> None:
    systemd = Systemd(manager.address)
    systemd.ready("first")
    systemd.status("first")
    systemd.status("second")
    assert [manager.heard()["STATUS"], manager.heard()["STATUS"]] == ["first", "second"]
    assert manager.is_silent()


def test_a_status_cannot_forge_another_variable(manager: Manager) -> None:
    Systemd(manager.address).status("a process\nMAINPID=1\x00\u2028STOPPING=1")
    assert manager.heard() == {"STATUS": "a process MAINPID=1  STOPPING=1"}


def test_a_long_status_is_cut(manager: Manager) -> None:
    Systemd(manager.address).status("x" * 10_000)
    assert len(manager.heard()["STATUS"]) == service.STATUS_LIMIT


def test_beats_are_sent_three_times_within_the_deadline(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(service.time, "monotonic", lambda: now[0])
    systemd = Systemd(manager.address, watchdog_seconds=30.0)
    sent = []
    for tick in range(300):  # thirty seconds of ticks
        now[0] = 100.0 + tick / 10
        systemd.beat()
        if not manager.is_silent():
            sent.append(tick)
    assert sent == [0, 100, 200]


def test_nobody_counts_beats_without_a_deadline(manager: Manager) -> None:
    service_manager({"NOTIFY_SOCKET": manager.address}).beat()
    assert manager.is_silent()


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "77"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "78"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "9" * 400}, None),
        ({"WATCHDOG_USEC": "9" * 5_000}, None),
        ({}, None),
    ],
)
def test_the_deadline_is_for_the_process_that_it_names(
    variables: dict[str, str], seconds: float | None
) -> None:
    assert service_manager({"NOTIFY_SOCKET": "@x", **variables}, pid=77).watchdog_seconds == seconds


@pytest.mark.parametrize("address", ["", "@", "vsock:2:1", "notify"])
def test_no_socket_means_no_manager(address: str) -> None:
    assert isinstance(service_manager({"NOTIFY_SOCKET": address} if address else {}), NoManager)


def test_a_manager_that_has_gone_is_counted_and_never_an_error(tmp_path: Path) -> None:
    systemd = Systemd(str(tmp_path / "gone"), watchdog_seconds=1.0)
    systemd.ready("")
    systemd.beat()
    systemd.stopping()
    assert systemd.unsent == 3
