# SPDX-License-Identifier: Apache-2.0
"""Processes and mappings are read from procfs text: a fake of it stands in for `/proc`."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotstage.probes.discovery.libraries import is_library
from hotstage.probes.discovery.processes import (
    ProcessId,
    ProcessTable,
    distinct_files,
    parse_identity,
    parse_mapping,
    printable,
)

STAT = b"%d (%s) %s 1 1 1 0 -1 4194560 100 0 0 0 5 3 0 0 20 0 1 0 %d 1000 200 18446744073709551615"
CUDA = "7f00000a1000-7f00000b2000 r-xp 00001000 fd:00 4242    /usr/lib/libcuda.so.550.163.01\n"
CUDA_DATA = "7f00000b2000-7f00000b3000 rw-p 00012000 fd:00 4242    /usr/lib/libcuda.so.550.163.01\n"
LIBC = "7f00000c0000-7f00000d0000 r-xp 00026000 fd:00 99      /usr/lib/libc.so.6\n"


def add_process(root: Path, pid: int, maps: str, *, name: bytes = b"server", state: bytes = b"S") -> None:
    folder = root / str(pid)
    folder.mkdir()
    (folder / "stat").write_bytes(STAT % (pid, name, state, 777))
    (folder / "comm").write_bytes(name + b"\n")
    (folder / "maps").write_text(maps)


def test_only_wanted_executable_mappings_are_reported(tmp_path: Path) -> None:
    add_process(tmp_path, 42, LIBC + CUDA + CUDA_DATA + "7ffd000-7ffe000 r-xp 00000000 00:00 0  [vdso]\n")
    view = ProcessTable(tmp_path).look(42, is_library)
    assert view is not None
    assert view.identity == ProcessId(42, 777)
    assert view.name == "server"
    (mapping,) = view.mappings
    assert mapping.path == "/usr/lib/libcuda.so.550.163.01"
    assert (mapping.device, mapping.inode, mapping.file_offset) == ((0xFD, 0), 4242, 0x1000)
    assert mapping.map_files_name == "7f00000a1000-7f00000b2000"


def test_pids_are_the_numeric_entries_in_order(tmp_path: Path) -> None:
    for name in ("90", "7", "self", "sys", "1e3"):
        (tmp_path / name).mkdir()
    assert ProcessTable(tmp_path).pids() == [7, 90]


def test_a_process_that_is_gone_or_a_zombie_is_absent(tmp_path: Path) -> None:
    add_process(tmp_path, 5, CUDA, state=b"Z")
    table = ProcessTable(tmp_path)
    assert table.look(5, is_library) is None
    assert table.look(6, is_library) is None
    assert table.name(6) == ""


def test_a_name_with_brackets_and_spaces_does_not_shift_the_fields() -> None:
    assert parse_identity(9, STAT % (9, b"a) R (b", b"S", 31)) == ProcessId(9, 31)
    assert parse_identity(9, b"9 (cut) S 1 2") is None
    assert parse_identity(9, b"") is None


def test_a_deleted_library_keeps_its_path_and_says_so() -> None:
    mapping = parse_mapping(CUDA.replace("\n", " (deleted)\n").encode())
    assert mapping is not None
    assert mapping.is_deleted
    assert mapping.path == "/usr/lib/libcuda.so.550.163.01"


def test_an_escaped_newline_in_a_path_is_the_newline() -> None:
    mapping = parse_mapping(rb"1000-2000 r-xp 00000000 fd:00 5 /tmp/a\012b/libcuda.so" + b"\n")
    assert mapping is not None
    assert mapping.path == "/tmp/a\nb/libcuda.so"


@pytest.mark.parametrize(
    "line", [b"\n", b"garbage\n", b"1000-2000 r-xp 0 fd:00 5\n", LIBC.replace("r-xp", "r--p").encode()]
)
def test_a_line_without_executable_file_mapping_is_none(line: bytes) -> None:
    assert parse_mapping(line) is None


def test_endless_maps_are_cut_and_reported(tmp_path: Path) -> None:
    add_process(tmp_path, 8, LIBC * 1000 + CUDA)
    view = ProcessTable(tmp_path, maps_bytes_limit=len(LIBC) * 500).look(8, is_library)
    assert view is not None
    assert view.is_truncated
    assert view.mappings == ()


def test_a_pid_that_changed_hands_during_the_look_is_gone(tmp_path: Path) -> None:
    add_process(tmp_path, 11, CUDA)

    def reborn(_: str) -> bool:
        (tmp_path / "11" / "stat").write_bytes(STAT % (11, b"other", b"R", 999))
        return True

    assert ProcessTable(tmp_path).look(11, reborn) is None


def test_segments_of_one_file_count_once(tmp_path: Path) -> None:
    add_process(tmp_path, 3, CUDA + CUDA.replace("0a1000", "0e1000") + CUDA.replace("4242", "4243"))
    view = ProcessTable(tmp_path).look(3, is_library)
    assert view is not None
    assert [mapping.inode for mapping in distinct_files(view.mappings)] == [4242, 4243]


def test_shown_text_has_no_control_characters_and_a_length_limit() -> None:
    assert printable("a\x1b[31m\nb\udc80") == "a?[31m?b?"
    assert len(printable("x" * 5000)) == 256
