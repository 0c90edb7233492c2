# SPDX-License-Identifier: Apache-2.0
"""Who a program is, and names that are read again when they may have changed."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

import pytest

from hotstage.attribution.facts import LIBRARIES_NS, REREAD_NS, FactsBook, program_of
from hotstage.probes.discovery.processes import ProcessTable

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
