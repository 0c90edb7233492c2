# SPDX-License-Identifier: Apache-2.0
"""Side-band records, built as the kernel lays them out, become events."""

from __future__ import annotations

import struct

import pytest

from hotstage.probes.discovery.sideband import Executed, Exited, Forked, Lost, Mapped, decode, parse_cpu_list

TRAILER = struct.pack("<IIQ", 42, 43, 123_456)


def record(kind: int, body: bytes, misc: int = 0) -> bytes:
    body += TRAILER
    body += bytes(-len(body) % 8)
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def mapped(path: bytes, misc: int = 0) -> bytes:
    head = struct.pack("<IIQQQIIQQII", 42, 43, 0x7F00, 0x1000, 0, 0xFD, 1, 4242, 0, 5, 2)
    name = path + b"\0"
    return record(10, head + name + bytes(-len(name) % 8), misc)


def test_a_mapping_tells_who_mapped_what_and_when() -> None:
    assert list(decode(mapped(b"/usr/lib/libcuda.so.1"))) == [
        Mapped(42, 123_456, "/usr/lib/libcuda.so.1", (0xFD, 1), 4242)
    ]


@pytest.mark.parametrize("path", [b"[vdso]", b"//anon", b""])
def test_mappings_of_no_file_are_skipped(path: bytes) -> None:
    assert list(decode(mapped(path))) == []


def test_a_build_id_in_place_of_the_inode_is_not_read_as_one() -> None:
    (event,) = decode(mapped(b"/lib/libcuda.so", misc=1 << 14))
    assert event == Mapped(42, 123_456, "/lib/libcuda.so", (0, 0), 0)


def test_a_new_thread_is_no_new_process() -> None:
    process = record(7, struct.pack("<IIIIQ", 50, 42, 50, 42, 1))
    thread = record(7, struct.pack("<IIIIQ", 42, 42, 51, 42, 1))
    assert list(decode(process + thread)) == [Forked(50, 42, 123_456)]


def test_exec_is_told_from_a_mere_rename() -> None:
    body = struct.pack("<II", 42, 42) + b"python3\0"
    assert list(decode(record(3, body, misc=1 << 13) + record(3, body))) == [Executed(42, 123_456)]


def test_every_thread_reports_its_exit() -> None:
    body = struct.pack("<IIIIQ", 42, 1, 44, 42, 9)
    assert list(decode(record(4, body))) == [Exited(42, 44, 123_456)]


def test_lost_records_are_counted() -> None:
    assert list(decode(record(2, struct.pack("<QQ", 7, 13)))) == [Lost(13)]


@pytest.mark.parametrize(
    "tail", [b"\x0a\0\0\0\0\0", struct.pack("<IHH", 10, 0, 4), struct.pack("<IHH", 10, 0, 9000)]
)
def test_a_cut_or_nonsensical_tail_ends_the_decoding(tail: bytes) -> None:
    good = mapped(b"/a/libcuda.so")
    assert len(list(decode(good + tail))) == 1


def test_an_unknown_kind_is_skipped_and_the_next_one_read() -> None:
    assert len(list(decode(record(99, bytes(40)) + mapped(b"/a/libcuda.so")))) == 1


def test_cpu_lists_are_read_as_the_kernel_writes_them() -> None:
    assert parse_cpu_list("0-2,8\n") == [0, 1, 2, 8]
    assert parse_cpu_list("0\n") == [0]
