# SPDX-License-Identifier: Apache-2.0
"""Only the exact patterns that were proven move a probe; everything else stays on the symbol."""

from __future__ import annotations

import pytest

from hotstage.probes.catalogue.placement import Placement, is_emulated, place


def code(text: str) -> bytes:
    return bytes.fromhex(text).ljust(24, b"\xcc")


LIBCUDA = code("81 3d 11 22 33 44 00 ba 1c 32 74 05")
PROFILER = code("48 8b 05 11 22 33 44 55")
PROFILER_R12 = code("48 8b 05 11 22 33 44 41 54")
NVTX = code("48 8b 05 11 22 33 44 48 85 c0 74 10")


@pytest.mark.parametrize(
    ("function", "skip"), [(LIBCUDA, 10), (PROFILER, 7), (PROFILER_R12, 7), (NVTX, 10)], ids=str
)
def test_a_proven_pattern_is_probed_at_its_emulated_instruction(function: bytes, skip: int) -> None:
    assert place(function) == Placement(skip, True)
    assert is_emulated(function[skip:])


@pytest.mark.parametrize("function", [LIBCUDA, PROFILER, NVTX], ids=["libcuda", "profiler", "nvtx"])
def test_the_off_switch_stays_on_the_symbol(function: bytes) -> None:
    assert place(function, allow_rule=False) == Placement(0, False)


@pytest.mark.parametrize(
    "near_miss",
    [
        "81 3d 11 22 33 44 00 ba 1c 32 75 05",  # jne
        "81 3d 11 22 33 44 00 ba 1c 32 0f 84",  # je rel32
        "83 3d 11 22 33 44 00 74 05",  # compare with a byte: shorter
        "48 8b 05 11 22 33 44 48 85 db 74 10",  # test of another register
        "48 8b 05 11 22 33 44 0f 1f 44 00 00",  # a five-byte nop inside: corrupts the red zone on 6.18
        "48 8d 05 11 22 33 44 55",  # lea
        "f3 0f 1e fa 55",  # endbr64: proven on no library of NVIDIA's
    ],
)
def test_a_near_miss_is_not_taken(near_miss: str) -> None:
    assert place(code(near_miss)) == Placement(0, False)


@pytest.mark.parametrize(
    ("first", "emulated"),
    [
        ("55", True),
        ("41 57", True),
        ("41 89 c0", False),
        ("90", True),
        ("66 90", True),
        ("0f 1f 44 00 00", True),
        ("e8 00 00 00 00", True),
        ("e9 00 00 00 00", True),
        ("eb 00", True),
        ("74 05", True),
        ("0f 84 00 00 00 00", True),
        ("0f af c7", False),
        ("48 83 ec 08", False),
        ("c3", False),
    ],
)
def test_what_the_kernel_emulates(first: str, emulated: bool) -> None:
    assert is_emulated(code(first)) == emulated
    assert place(code(first)) == Placement(0, emulated)


def test_a_function_cut_off_by_the_end_of_its_segment_is_left_alone() -> None:
    assert place(LIBCUDA[:11]) == Placement(0, False)
    assert place(b"") == Placement(0, False)
