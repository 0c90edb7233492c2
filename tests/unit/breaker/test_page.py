# SPDX-License-Identifier: Apache-2.0
"""The page between the agent and its callers: writer here, reader in `hotstage_marks`, both real."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from hotstage.breaker import page as writer_side
from hotstage.breaker.page import BreakerPage, PageEntry, PageState
from hotstage.breaker.record import BreakerState, Override, OverrideAction
from hotstage.clock import boot_id
from hotstage.config.settings import PageConfig
from hotstage.errors import StoreError
from hotstage_marks import breakers as reader_side

SECOND = 1_000_000_000
SHED = PageEntry("stage:vision_encode:image", PageState.open, is_enforced=True, admit_ratio=0.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "breakers"


@pytest.fixture
def page(path):
    opened = BreakerPage(path, boot_id(), stale_after_ns=5 * SECOND)
    yield opened
    opened.close()


@pytest.fixture
def reader(path):
    return reader_side.BreakerPage(str(path))


def test_both_sides_have_the_same_layout():
    for name in ("MAGIC", "VERSION", "SECONDS_MASK"):
        assert getattr(writer_side, name) == getattr(reader_side, name)
    assert writer_side.HEADER.format == reader_side.HEADER.format
    assert [reader_side.STATES[state] for state in PageState] == [state.name for state in PageState]
    assert writer_side.name_hash("gpu:GPU-ü") == reader_side._name_hash("gpu:GPU-ü".encode()) & 0xFFFFFF


def test_the_header_is_64_bytes_and_words_are_aligned(page, path):
    raw = path.read_bytes()
    assert len(raw) == 64 + 1024 * 136
    magic, version, header, capacity, name_bytes = struct.unpack_from("<8sIIII", raw)
    assert (magic, version, header, capacity, name_bytes) == (b"hsbrkpg\0", 1, 64, 1024, 128)
    assert raw[24:60].decode() == boot_id()


def test_every_caller_may_read_it_whatever_the_writers_umask(path):
    before = os.umask(0o077)
    try:
        BreakerPage(path, boot_id(), stale_after_ns=5 * SECOND).close()
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644


def test_an_enforced_open_breaker_sheds(page, reader):
    page.publish([SHED], time.monotonic_ns())
    assert reader.allow(SHED.name) is False
    assert reader.get(SHED.name) == reader_side.Breaker(SHED.name, "open", True, False, 0.0)


def test_a_breaker_in_dry_run_admits_whatever_its_state(page, reader):
    page.publish([replace(SHED, is_enforced=False)], time.monotonic_ns())
    assert reader.allow(SHED.name) is True
    assert reader.get(SHED.name).state == "open"


def test_an_unknown_name_a_missing_page_and_a_broken_page_admit(page, reader, tmp_path):
    page.publish([SHED], time.monotonic_ns())
    assert reader.allow("stage:other:text") is True
    assert reader_side.BreakerPage(str(tmp_path / "absent")).allow(SHED.name) is True
    for content in (b"", b"short", b"x" * 200_000, writer_side.MAGIC + b"\xff" * 200_000):
        (tmp_path / "broken").write_bytes(content)
        assert reader_side.BreakerPage(str(tmp_path / "broken")).allow(SHED.name) is True


def test_a_page_of_another_boot_is_no_page(path):
    old = BreakerPage(path, "00000000-0000-0000-0000-000000000000", 5 * SECOND)
    old.publish([SHED], time.monotonic_ns())
    assert reader_side.BreakerPage(str(path)).allow(SHED.name) is True
    old.close()


def test_half_open_admits_its_share(page, reader):
    page.publish([replace(SHED, state=PageState.half_open, admit_ratio=0.3)], time.monotonic_ns())
    admitted = sum(reader.allow(SHED.name) for _ in range(4_000))
    assert 1_000 < admitted < 1_400
    page.publish([replace(SHED, state=PageState.half_open, admit_ratio=1.0)], time.monotonic_ns())
    assert all(reader.allow(SHED.name) for _ in range(100))


@pytest.mark.parametrize("sheds", [False, True])
def test_a_stale_word_answers_by_its_policy(page, reader, sheds):
    entry = replace(SHED, stale_sheds=sheds)
    page.publish([entry], time.monotonic_ns() - 60 * SECOND)
    assert reader.get(SHED.name).stale is True
    assert reader.allow(SHED.name) is not sheds


def test_a_breaker_without_data_is_stale_while_the_page_is_fresh(page, reader):
    page.publish([replace(SHED, is_stale=True), replace(SHED, name="host")], time.monotonic_ns())
    assert reader.get(SHED.name).stale is True
    assert reader.get("host").stale is False


def test_staleness_survives_the_wrap_of_its_24_bits(page, reader, monkeypatch):
    wrap = (1 << 24) + 2
    page.publish([SHED], (wrap - 4) * SECOND)
    monkeypatch.setattr(reader_side.time, "monotonic", lambda: wrap - 3.5)
    assert reader.get(SHED.name).stale is False
    monkeypatch.setattr(reader_side.time, "monotonic", lambda: wrap + 2.0)
    assert reader.get(SHED.name).stale is True


def test_a_breaker_that_is_gone_leaves_the_page_and_its_slot_serves_another(page, reader):
    page.publish([SHED], time.monotonic_ns())
    assert reader.allow(SHED.name) is False
    page.publish([], time.monotonic_ns())
    assert reader.get(SHED.name) is None
    for index in range(1_100):
        page.publish([replace(SHED, name=f"n{index}")], time.monotonic_ns())
    assert reader.allow("n1099") is False
    assert reader.allow(SHED.name) is True


def test_a_reader_that_knew_a_slot_does_not_believe_its_next_owner(page, reader):
    page.publish([SHED], time.monotonic_ns())
    assert reader.allow(SHED.name) is False
    # What a full round of the slots would do: the same slot, another name.
    word = writer_side._word(SHED, int(time.monotonic()) + 5)
    page._words[0] = word | writer_side.name_hash("host") << 16
    assert reader.allow(SHED.name) is True


def test_the_inode_stays_and_a_restart_keeps_slots_and_mapped_readers(page, path, reader):
    inode = path.stat().st_ino
    page.publish([replace(SHED, name="host"), SHED], time.monotonic_ns())
    assert reader.allow(SHED.name) is False
    page.close()
    again = BreakerPage(path, boot_id(), 5 * SECOND)
    again.publish([replace(SHED, admit_ratio=1.0, state=PageState.closed)], time.monotonic_ns())
    assert path.stat().st_ino == inode
    assert reader.allow(SHED.name) is True
    assert reader.get("host") is None
    again.close()


def test_a_reader_finds_a_page_that_appears_or_is_replaced(page, path, reader, monkeypatch):
    monkeypatch.setattr(reader_side, "_LOOK_AGAIN_SECONDS", 0.0)
    assert reader.allow(SHED.name) is True
    page.publish([SHED], time.monotonic_ns())
    assert reader.allow(SHED.name) is False
    for file in path.parent.iterdir():  # as where the directory is made anew
        file.unlink()
    other = BreakerPage(path, boot_id(), 5 * SECOND)
    other.publish([SHED], time.monotonic_ns())
    page.publish([replace(SHED, admit_ratio=1.0)], time.monotonic_ns() - 60 * SECOND)
    assert reader.allow(SHED.name) is False
    other.close()


def test_a_new_breaker_is_seen_at_once_by_a_reader_that_asked_for_it_before(page, reader):
    page.publish([replace(SHED, name="host")], time.monotonic_ns())
    assert reader.allow(SHED.name) is True
    page.publish([replace(SHED, name="host"), SHED], time.monotonic_ns())
    assert reader.allow(SHED.name) is False


def test_more_breakers_than_slots_and_names_too_long_are_counted(page, reader):
    many = [replace(SHED, name=f"n{index}") for index in range(writer_side.CAPACITY + 3)]
    page.publish(many, time.monotonic_ns())
    assert page.dropped == 3
    assert reader.allow("n0") is False
    assert reader.allow(f"n{writer_side.CAPACITY}") is True
    page.publish([replace(SHED, name="x" * 129)], time.monotonic_ns())
    assert page.dropped == 4


def test_all_lists_every_breaker_by_name(page, reader):
    page.publish([SHED, replace(SHED, name="host", is_enforced=False)], time.monotonic_ns())
    assert [(b.name, b.enforced) for b in reader.all()] == [("host", False), (SHED.name, True)]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, ("open", False, 0.0, False)),
        ({"enforced": True}, ("open", True, 0.0, False)),
        ({"enforced": True, "state": BreakerState.half_open}, ("half_open", True, 0.1, False)),
        ({"enforced": True, "state": BreakerState.closed}, ("closed", True, 1.0, False)),
        ({"enforced": True, "is_stale": True}, ("open", True, 0.0, True)),
        ({"is_stale": True, "override": "force_open"}, ("open", True, 0.0, False)),
        ({"enforced": True, "override": "disable"}, ("closed", False, 1.0, False)),
        ({"enforced": True, "override": "metrics_only"}, ("open", False, 0.0, False)),
    ],
)
def test_a_record_becomes_what_callers_need_to_know(make, changed, told):
    if "override" in changed:
        action = OverrideAction(changed["override"])
        changed = {**changed, "override": Override(action, "uid 0", "", 1, 2)}
    entry = writer_side.entry_of(make.breaker(**changed), PageConfig())
    assert (entry.state.name, entry.is_enforced, entry.admit_ratio, entry.is_stale) == told


def test_the_module_function_maps_a_path_once(page, path, monkeypatch):
    page.publish([SHED], time.monotonic_ns())
    assert reader_side.allow(SHED.name, str(path)) is False
    monkeypatch.setenv(reader_side.PATH_VARIABLE, str(path))
    assert reader_side.BreakerPage().allow(SHED.name) is False


def test_a_path_that_cannot_be_written_is_a_store_error(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="cannot write the breaker page"):
        BreakerPage(tmp_path / "link", boot_id(), SECOND)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError):
        BreakerPage(tmp_path / "pipe", boot_id(), SECOND)


def test_a_second_writer_is_told_who_has_the_page_and_changes_nothing(page, path, reader):
    page.publish([SHED], time.monotonic_ns())
    before, inode = path.read_bytes(), path.stat().st_ino
    with pytest.raises(StoreError, match="another agent writes the breaker page") as caught:
        BreakerPage(path, "00000000-0000-0000-0000-000000000000", SECOND)
    assert str(path) in caught.value.message and "page.path" in caught.value.remedy
    assert caught.value.exit_code == 4
    assert (path.read_bytes(), path.stat().st_ino) == (before, inode)
    assert reader.allow(SHED.name) is False


_HOLD = """
import sys
from pathlib import Path
from hotstage.breaker.page import BreakerPage
page = BreakerPage(Path(sys.argv[1]), "00000000-0000-0000-0000-000000000000", 1)
print("holds", flush=True)
sys.stdin.read()
"""


def test_a_killed_writer_leaves_the_page_to_the_next_one(path):
    command = [sys.executable, "-c", _HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "holds\n"
        inode = path.stat().st_ino
        with pytest.raises(StoreError, match="another agent"):
            BreakerPage(path, boot_id(), SECOND)
        other.kill()
        other.wait(10)
    BreakerPage(path, boot_id(), SECOND).close()
    assert path.stat().st_ino == inode


def test_a_reader_cannot_keep_a_writer_out(path):
    BreakerPage(path, boot_id(), SECOND).close()
    with path.open("rb") as hostile:
        fcntl.flock(hostile, fcntl.LOCK_EX | fcntl.LOCK_NB)
        BreakerPage(path, boot_id(), SECOND).close()
    assert path.with_name("breakers.lock").stat().st_mode & 0o777 == 0o600


_COLLECT = """
import sys, time
from hotstage_marks import breakers
words = breakers._Mapping(sys.argv[1]).words
print("ready", flush=True)
seen, until = set(), time.monotonic() + 0.3
while time.monotonic() < until:
    for _ in range(1_000):
        seen.add(words[0])
print(*sorted(seen))
"""


def test_another_process_never_sees_half_of_a_word(page, path):
    page.publish([SHED], time.monotonic_ns())
    low, high = 0x0000000000000001, 0xFFFFFFFFFFFFFFFF
    page._words[0] = low
    command = [sys.executable, "-c", _COLLECT, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout.readline() == "ready\n"
        until = time.monotonic() + 10
        while reader.poll() is None and time.monotonic() < until:
            for _ in range(1_000):
                page._words[0] = low
                page._words[0] = high
        seen = reader.stdout.read().split()
    assert [int(word) for word in seen] == [low, high]


def test_a_page_that_callers_cannot_find_any_more_says_so(page, path):
    assert page.trouble() is None
    path.rename(path.with_name("elsewhere"))
    assert "not to be found: No such file" in page.trouble()
    path.write_bytes(b"")
    assert "another file than the breaker page" in page.trouble()
    path.with_name("elsewhere").replace(path)
    assert page.trouble() is None
