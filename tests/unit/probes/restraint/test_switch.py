# SPDX-License-Identifier: Apache-2.0
"""The kill switch is a file: its existence counts, what it holds is for people and believed in nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hotstage.errors import HotstageError
from hotstage.probes.restraint.switch import Switch, SwitchFile


@pytest.fixture
def file(tmp_path: Path) -> SwitchFile:
    return SwitchFile(tmp_path / "probes.off")


def test_no_file_is_on(file: SwitchFile) -> None:
    assert file.read() == Switch(False)


def test_an_order_is_found_again_with_actor_reason_and_time(file: SwitchFile) -> None:
    file.off(actor="uid 0 (root)", reason="driver update", wall_ns=17)
    assert file.read() == Switch(True, "uid 0 (root)", "driver update", 17)
    assert file.read().sentence == "switched off by uid 0 (root): driver update"
    assert [entry.name for entry in file.path.parent.iterdir()] == ["probes.off"]
    file.on()
    assert not file.read().is_off
    file.on()


def test_the_first_order_stands(file: SwitchFile) -> None:
    file.off(actor="a", reason="first", wall_ns=1)
    file.off(actor="b", reason="second", wall_ns=2)
    assert file.read().reason == "first"


def test_touch_is_enough_and_its_owner_the_actor(file: SwitchFile) -> None:
    file.path.touch()
    found = file.read()
    assert found.is_off
    assert (found.actor or "").startswith(f"uid {os.geteuid()}")
    assert found.since_ns is not None and found.since_ns > 1_600_000_000_000_000_000


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[1]", b'{"actor": 3, "since_ns": -4}', b"{" * 9000, b'{"since_ns": 1e400}'],
)
def test_whatever_it_holds_it_says_off(file: SwitchFile, content: bytes) -> None:
    file.path.write_bytes(content)
    assert file.read().is_off
    assert file.read().reason == f"{file.path} exists"


def test_nothing_in_it_moves_a_terminal(file: SwitchFile) -> None:
    file.off(actor="\x1b[31mred", reason="a\nb" + "c" * 900, wall_ns=1)
    found = file.read()
    assert found.actor == "?[31mred"
    assert found.reason is not None and found.reason.startswith("a?bc") and len(found.reason) == 300


def test_a_fifo_does_not_hang_it(file: SwitchFile) -> None:
    os.mkfifo(file.path)
    assert file.read().is_off


def test_a_file_that_cannot_be_made_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(HotstageError, match="cannot be made") as caught:
        SwitchFile(tmp_path / "no/where/probes.off").off(actor="a", reason="b", wall_ns=1)
    assert caught.value.remedy


def test_a_full_disk_takes_the_order_without_its_words(
    file: SwitchFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str, encoding: str) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    file.off(actor="a", reason="b", wall_ns=1)
    assert file.read().is_off
    assert [entry.name for entry in file.path.parent.iterdir()] == ["probes.off"]


def test_a_link_to_nowhere_is_a_file_that_is_there(file: SwitchFile) -> None:
    file.path.symlink_to("/no/such")
    file.off(actor="a", reason="b", wall_ns=1)
    assert file.read().is_off
    file.on()
    assert not file.read().is_off
