# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from hotstage.small_files import read_small, text_of


def test_a_file_is_read_whole_and_no_descriptor_stays(tmp_path):
    file = tmp_path / "maps"
    file.write_bytes(bytes(range(256)) * 300)
    held = len(list(Path("/proc/self/fd").iterdir()))
    assert read_small(file, 1 << 20) == file.read_bytes()
    assert len(list(Path("/proc/self/fd").iterdir())) == held


def test_a_file_that_the_kernel_gives_in_pieces_is_read_whole():
    """`maps` comes a page at a time."""
    assert len(read_small("/proc/self/maps", 1 << 20)) > 4096
    assert read_small("/proc/self/comm") == Path("/proc/self/comm").read_bytes()


def test_not_more_is_read_than_asked_for(tmp_path):
    file = tmp_path / "stat"
    file.write_bytes(b"a" * 100)
    assert read_small(file, 7) == b"a" * 7


def test_what_is_not_there_raises_and_is_an_empty_text(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_small(tmp_path / "none")
    assert text_of(tmp_path / "none") == ""
    (tmp_path / "odd").write_bytes(b"\xff7\n")
    assert text_of(str(tmp_path / "odd")) == "\ufffd7\n"
