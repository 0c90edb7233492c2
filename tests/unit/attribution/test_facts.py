# SPDX-License-Identifier: Apache-2.0
"""Who a program is, and names that are read again when they may have changed."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

import pytest

from hotstage.attribution.facts import LIBRARIES_NS, REREAD_NS, FactsBook, ProcessFacts, program_of
from hotstage.probes.discovery.processes import ProcessId, ProcessTable

PR_SET_NAME = 15


@pytest.mark.parametrize(
    ("executable", "command", "program"),
    [
        ("python3.11", "python3.11 -m vllm.entrypoints --port 8001", "python#.# vllm.entrypoints"),
        ("python3.11", "/venv/bin/python -u /srv/server.py --model b", "python#.# server.py"),
        ("python3.12", "/venv/bin/python /other/server.py", "python#.# server.py"),
        ("python3.11", "VLLM::Worker_TP3", "python#.# VLLM::Worker_TP#"),
        ("llama-server", "./llama-server --n-gpu-layers 99", "llama-server"),
        ("", "", ""),
    ],
)
def test_a_program_is_what_runs_whatever_its_options(executable: str, command: str, program: str) -> None:
    assert program_of(executable, command.split()) == program


def test_names_of_this_process_are_read_and_read_again() -> None:
    book, pid = FactsBook(ProcessTable(), with_libraries=True), os.getpid()
    facts = book.process(pid, 0)
    assert facts is not None
    assert "python" in facts.program
    assert any(name.startswith("libc.so") or name.startswith("libc-") for name in facts.libraries)
    tid = threading.get_native_id()
    before = book.thread(pid, tid)
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"vit-0", 0, 0, 0)
    try:
        assert book.thread(pid, tid) == before, "not read for each question"
        book.process(pid, REREAD_NS)
        assert book.thread(pid, tid) == "vit-0"
    finally:
        ctypes.CDLL(None).prctl(PR_SET_NAME, before.encode(), 0, 0, 0)


def test_a_process_that_has_gone_is_none_and_forgotten(tmp_path: Path) -> None:
    book = FactsBook(ProcessTable(tmp_path), with_libraries=False)
    assert book.process(4, 0) is None
    folder = tmp_path / "4"
    folder.mkdir()
    (folder / "stat").write_bytes(b"4 (a) S " + b" ".join([b"0"] * 18) + b" 77 0")
    (folder / "cmdline").write_bytes(b"a\0--x\0\x1b[31m\0")
    facts = book.process(4, LIBRARIES_NS)
    assert facts is not None
    assert facts.command == "a --x ?[31m"
    assert book.thread(4, 4) == ""
    book.keep([])
    assert book.thread(4, 4) == ""


def test_names_of_a_hostile_process_are_made_plain(tmp_path: Path) -> None:
    """A name that no text can hold must not end the judging of all processes."""
    folder = tmp_path / "4"
    (folder / "task/5").mkdir(parents=True)
    (folder / "stat").write_bytes(b"4 (a) S " + b" ".join([b"0"] * 18) + b" 77 0")
    (folder / "cmdline").write_bytes(b"\xff\n" * 3_000_000)
    (folder / "task/5/comm").write_bytes(b"\x1b]0;x\n\xff\r\n")
    (folder / "exe").symlink_to(os.fsdecode(b"/tmp/\xff\x1b[31m (deleted)"))
    book = FactsBook(ProcessTable(tmp_path), with_libraries=True)
    facts = book.process(4, 0)
    assert facts is not None
    assert len(facts.command) <= 4096 and facts.command.isprintable()
    assert facts.program.startswith("??[#m") and len(facts.program) <= 128
    assert len(facts.program_key) == 16
    assert book.thread(4, 5) == "?]0;x?\ufffd?"


def test_what_one_user_taught_of_a_program_is_nobody_elses() -> None:
    keys = {
        ProcessFacts(ProcessId(4, 1), program="python# serve", uid=uid).program_key for uid in (0, 1000, None)
    }
    assert len(keys) == 3


def test_the_user_is_the_real_one_by_the_kernels_word(tmp_path: Path) -> None:
    book = FactsBook(ProcessTable(), with_libraries=False)
    facts = book.process(os.getpid(), 0)
    assert facts is not None and facts.uid == os.getuid()
    folder = tmp_path / "4"
    folder.mkdir()
    (folder / "stat").write_bytes(b"4 (a) S " + b" ".join([b"0"] * 18) + b" 77 0")
    (folder / "status").write_text("Name:\tx\\nUid:\t0\nUid:\t1000\t0\t0\t0\n")
    facts = FactsBook(ProcessTable(tmp_path), with_libraries=False).process(4, 0)
    assert facts is not None and facts.uid == 1000
