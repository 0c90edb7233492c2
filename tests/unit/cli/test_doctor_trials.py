# SPDX-License-Identifier: Apache-2.0
"""Ports and places are tried for real, and left as they were."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from hotstage.cli.doctor_checks import Status
from hotstage.cli.doctor_trials import find_libraries, list_events, try_directory, try_port


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        (finding,) = try_port("API", address)
        assert finding.status is Status.WARN
        assert address in finding.detail
    (finding,) = try_port("API", address)
    assert finding.status is Status.OK


def test_a_directory_that_can_be_made_is_not_made(tmp_path: Path) -> None:
    (finding,) = try_directory("state", str(tmp_path / "a" / "b"))
    assert finding.status is Status.OK
    assert f"will be made in {tmp_path}" in finding.detail
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_a_matter_of_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    (finding,) = try_directory("state", str(tmp_path))
    assert (finding.status, finding.is_permission) == (Status.FAIL, True)


def test_a_place_below_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (finding,) = try_directory("state", str(tmp_path / "file" / "state"))
    assert finding.status is Status.FAIL


def test_no_process_with_a_library_is_fine(tmp_path: Path) -> None:
    (finding,) = find_libraries(tmp_path)
    assert finding.status is Status.OK
    assert "attaches when a process opens one" in finding.detail


def test_only_events_with_a_format_are_tracepoints(tmp_path: Path) -> None:
    (tmp_path / "printk" / "console").mkdir(parents=True)
    (tmp_path / "printk" / "console" / "format").write_text("")
    (tmp_path / "printk" / "enable").write_text("")
    assert list_events(tmp_path) == {"printk/console"}
    assert list_events(tmp_path / "nowhere") == frozenset()
