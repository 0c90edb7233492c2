# SPDX-License-Identifier: Apache-2.0
"""Records for the journal, read by a parser of its protocol from a socket that stands for it."""

from __future__ import annotations

import contextlib
import fcntl
import io
import logging
import os
import socket
import struct
import time

import pytest

from hotstage.cli import journald
from hotstage.cli.journald import JournalHandler, field_name, is_journal, priority

STANDARD = frozenset(vars(logging.makeLogRecord({})))


def parse(message: bytes) -> list[tuple[str, bytes]]:
    """Fields as journald reads them: `NAME=value\\n`, or `NAME\\n`, a length and that many bytes."""
    fields, rest = [], message
    while rest:
        line, _, after = rest.partition(b"\n")
        if b"=" in line:
            name, _, value = line.partition(b"=")
            rest = after
        else:
            name, (length,) = line, struct.unpack_from("<Q", after)
            value, end = after[8 : 8 + length], after[8 + length : 9 + length]
            assert end == b"\n", f"{name!r} is longer than it says"
            rest = after[9 + length :]
        fields.append((name.decode(), value))
    return fields


class Journal:
    """journald's end: takes datagrams, and descriptors of sealed files."""

    def __init__(self, path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(2)
        self.sealed = 0

    def entry(self) -> list[tuple[str, bytes]]:
        message, fds, _, _ = socket.recv_fds(self.socket, 1 << 20, 1)
        if fds:
            needed = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
            assert fcntl.fcntl(fds[0], fcntl.F_GET_SEALS) & needed == needed
            self.sealed += 1
            message = os.pread(fds[0], 1 << 22, 0)
            os.close(fds[0])
        return parse(message)


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "socket")
    yield made
    made.socket.close()


@pytest.fixture
def lines():
    return io.StringIO()


@pytest.fixture
def log(journal, lines):
    def fields(record):
        return {key: value for key, value in vars(record).items() if key not in STANDARD}

    handler = JournalHandler("agent", fields, logging.StreamHandler(lines), journal.path)
    logger = logging.Logger("hotstage.test")
    logger.addHandler(handler)
    yield logger
    handler.close()


def test_a_record_carries_its_level_its_place_and_its_fields(journal, log):
    log.warning("attach failed", extra={"pid": 77, "path": "/lib/libcuda.so.1"})
    fields = dict(journal.entry())
    assert fields["PRIORITY"] == b"4"
    assert fields["SYSLOG_IDENTIFIER"] == b"hotstage-agent"
    assert fields["CODE_FUNC"] == b"test_a_record_carries_its_level_its_place_and_its_fields"
    assert fields["CODE_FILE"].endswith(b"test_journald.py")
    assert (fields["HOTSTAGE_PID"], fields["HOTSTAGE_PATH"]) == (b"77", b"/lib/libcuda.so.1")
    assert fields["MESSAGE"] == b'attach failed pid=77 path="/lib/libcuda.so.1"'


def test_a_name_with_newlines_forges_no_field(journal, log):
    name = "worker\nPRIORITY=0\nMESSAGE=all is well\n_UID=0\nX\n\x05\0\0\0\0\0\0\0"
    log.error("a process %s died", name, extra={"process_name": name})
    entry = journal.entry()
    assert [field for field, _ in entry].count("PRIORITY") == 1
    assert {field for field, _ in entry} <= {
        *("MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "CODE_FILE", "CODE_LINE", "CODE_FUNC"),
        *("HOTSTAGE_PROCESS", "HOTSTAGE_LOGGER", "HOTSTAGE_PROCESS_NAME"),
    }
    assert dict(entry)["HOTSTAGE_PROCESS_NAME"].decode() == name
    assert dict(entry)["PRIORITY"] == b"3"


def test_a_field_name_is_one_that_the_journal_takes():
    assert field_name("event_id") == "HOTSTAGE_EVENT_ID"
    assert field_name("a=b\nc é") == "HOTSTAGE_A_B_C__"
    assert len(field_name("x" * 100)) == 64


def test_an_error_comes_with_its_traceback(journal, log):
    try:
        raise ValueError("no such thing")
    except ValueError:
        log.exception("a step failed")
    message = dict(journal.entry())["MESSAGE"].decode()
    assert message.startswith("a step failed\nTraceback")
    assert message.endswith("ValueError: no such thing")


def test_a_big_record_comes_as_a_sealed_file(journal, log):
    log.info("big", extra={f"part_{number}": "x" * 60_000 for number in range(5)})
    assert dict(journal.entry())["HOTSTAGE_PART_4"] == b"x" * 60_000
    assert journal.sealed == 1


def test_a_value_that_is_too_long_is_cut_and_counted(journal, log):
    log.info("long", extra={"text": "x" * (journald.VALUE_LIMIT_BYTES + 10)})
    fields = dict(journal.entry())
    assert len(fields["HOTSTAGE_TEXT"]) == journald.VALUE_LIMIT_BYTES
    # Of the field itself, and of the sentence that repeats it: `long text="…"`.
    assert int(fields["HOTSTAGE_CUT_BYTES"]) == 10 + 10 + len('long text=""')


def test_what_the_journal_does_not_take_goes_to_standard_error(journal, log, lines):
    journal.socket.close()
    journal.path.unlink()
    log.warning("nobody hears")
    assert lines.getvalue() == "nobody hears\n"
    assert log.handlers[0].refused == 1


def fill(path) -> int:
    """Send until nobody can any more, as other programs do beside us; how many that were."""
    sent, before = 0, -1
    while sent != before:
        before = sent
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as neighbour:
            neighbour.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    neighbour.sendto(b"MESSAGE=x\n", str(path))
                    sent += 1
    return sent


def test_a_journal_that_does_not_read_costs_its_time_once(journal, log, lines):
    fill(journal.path)
    began = time.monotonic()
    for number in range(40):
        log.warning("record %d", number)
    assert time.monotonic() - began < 3 * journald.SEND_SECONDS
    assert lines.getvalue().splitlines() == [f"record {number}" for number in range(40)]
    assert log.handlers[0].refused == 40


def test_a_journal_that_reads_again_gets_what_is_said_then(journal, log, monkeypatch):
    monkeypatch.setattr(journald, "SEND_SECONDS", 0.05)
    waiting = fill(journal.path)
    log.warning("lost to it")
    for _ in range(waiting):
        journal.socket.recv(1 << 16)
    log.warning("heard at once")
    assert dict(journal.entry())["MESSAGE"] == b"heard at once"


def test_a_standard_error_that_does_not_read_either_drops_and_says_how_many(journal, tmp_path, monkeypatch):
    monkeypatch.setattr(journald, "SEND_SECONDS", 0.05)
    near, far = os.pipe()
    with os.fdopen(far, "w") as stuck:
        os.set_blocking(far, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(far, b"x" * 4096)
        os.set_blocking(far, True)
        handler = JournalHandler("agent", lambda _: {}, logging.StreamHandler(stuck), journal.path)
        log = logging.Logger("hotstage.test")
        log.addHandler(handler)
        waiting = fill(journal.path)
        for number in range(5):
            log.warning("record %d", number)
        assert (handler.refused, handler.dropped) == (0, 5)
        for _ in range(waiting):
            journal.socket.recv(1 << 16)
        log.warning("again")
        log.warning("and again")
        assert dict(journal.entry())["HOTSTAGE_DROPPED_RECORDS"] == b"5"
        assert "HOTSTAGE_DROPPED_RECORDS" not in dict(journal.entry())
        handler.close()
        os.close(near)


@pytest.mark.parametrize(
    ("level", "number"),
    [(logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3), (logging.CRITICAL, 2)],
)
def test_levels_are_syslogs(level, number):
    assert priority(level) == number


def test_only_the_descriptor_itself_tells_that_it_is_the_journals(tmp_path):
    with (tmp_path / "stream").open("w") as stream, (tmp_path / "other").open("w") as other:
        status = os.fstat(stream.fileno())
        named = f"{status.st_dev}:{status.st_ino}"
        assert is_journal(stream.fileno(), named)
        assert not is_journal(other.fileno(), named)
        assert not is_journal(stream.fileno(), None)
