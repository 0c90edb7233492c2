# SPDX-License-Identifier: Apache-2.0
"""Catalogue × library: placed points, missing symbols, aliases, and probes that are there already."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.spec import Tier
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.discovery.libraries import ParsedLibrary
from hotstage.probes.discovery.processes import Mapping
from hotstage.probes.discovery.targets import VARIANTS_LIMIT, is_probed, plan
from hotstage.probes.loader.base import OpenLibrary, PointKind

sys.path.insert(0, str(Path(__file__).parent))
from elf_files import CODE_OFFSET, Layout, make_elf

COMPARE_AND_JUMP = bytes.fromhex("813d000000000000000074055548")
PUSH = b"\x55\x48\x89\xe5"

Parse = Callable[..., ParsedLibrary]


@pytest.fixture
def parse() -> Iterator[Parse]:
    fds: list[int] = []

    def make(
        names: list[str],
        code: dict[int, bytes],
        *,
        kind: str = "libcuda",
        change: Callable[[bytearray, Layout], None] = lambda data, layout: None,
    ) -> ParsedLibrary:
        data, layout = make_elf(names)
        for index, instructions in code.items():
            at = CODE_OFFSET + 16 * index
            data[at : at + len(instructions)] = instructions
        change(data, layout)
        fd = os.memfd_create("libcuda.so.1")
        fds.append(fd)
        os.write(fd, data)
        library = OpenLibrary(fd, "/lib/libcuda.so.1", 1, 2, len(data), "", kind)
        return ParsedLibrary(library, read_elf(fd), unlinked=False)

    yield make
    for fd in fds:
        os.close(fd)


def test_points_are_placed_behind_the_compare(parse: Parse) -> None:
    parsed = parse(["cuLaunchKernel", "cuMemAlloc_v2"], {0: COMPARE_AND_JUMP, 1: PUSH})
    launch, alloc = plan(parsed, LIBRARIES)[0]
    assert (launch.symbol, launch.kind, launch.call_id) == ("cuLaunchKernel", PointKind.LAUNCH, 1)
    assert (launch.symbol_offset, launch.offset, launch.is_emulated) == (CODE_OFFSET, CODE_OFFSET + 10, True)
    assert (alloc.kind, alloc.offset, alloc.is_emulated) == (PointKind.TIMED, CODE_OFFSET + 16, True)


def test_a_function_that_begins_with_a_five_byte_nop_is_not_probed_and_says_why(parse: Parse) -> None:
    parsed = parse(["cuLaunchKernel", "cuMemAlloc_v2"], {0: b"\x0f\x1f\x44\x00\x00\x55", 1: PUSH})
    points, missed = plan(parsed, LIBRARIES)
    assert [point.symbol for point in points] == ["cuMemAlloc_v2"]
    assert any(lack.symbol == "cuLaunchKernel" and "forked children" in lack.reason for lack in missed)


def test_fast_placement_can_be_switched_off(parse: Parse) -> None:
    parsed = parse(["cuLaunchKernel"], {0: COMPARE_AND_JUMP})
    (point,) = plan(parsed, LIBRARIES, fast_placement=False)[0]
    assert (point.offset, point.is_emulated) == (CODE_OFFSET, False)


def test_what_the_library_lacks_is_listed_by_the_calls_own_name(parse: Parse) -> None:
    missed = {miss.symbol: miss for miss in plan(parse(["cuLaunchKernel"], {0: PUSH}), LIBRARIES)[1]}
    assert "cuLaunchKernel" not in missed
    assert "cuLaunchKernel_ptsz" not in missed
    assert missed["cuMemAlloc_v2"].reason == "not exported"
    assert missed["cuMemAlloc_v2"].library == "/lib/libcuda.so.1"


def test_variants_count_under_the_same_call(parse: Parse) -> None:
    parsed = parse(["cuLaunchKernel", "cuLaunchKernel_ptsz"], {0: PUSH, 1: PUSH})
    assert [(p.symbol, p.call_id) for p in plan(parsed, LIBRARIES)[0]] == [
        ("cuLaunchKernel", 1),
        ("cuLaunchKernel_ptsz", 1),
    ]


def test_two_names_of_one_address_are_probed_once(parse: Parse) -> None:
    def share(data: bytearray, layout: Layout) -> None:
        second = layout.symbols + 2 * 24 + 8
        struct.pack_into("<Q", data, second, struct.unpack_from("<Q", data, second - 24)[0])

    parsed = parse(["cuLaunchKernel", "cuLaunchKernel_ptsz"], {0: PUSH}, change=share)
    assert len(plan(parsed, LIBRARIES)[0]) == 1


def test_a_kind_without_a_catalogue_gives_nothing(parse: Parse) -> None:
    assert plan(parse(["cublasCreate_v2"], {0: PUSH}, kind="libcublas"), LIBRARIES) == ((), ())


def test_a_call_above_the_tier_and_one_that_is_newer_are_left_out_as_expected(parse: Parse) -> None:
    parsed = parse(["cuLaunchKernel", "cuEventRecord"], {0: PUSH, 1: PUSH})
    points, missed = plan(parsed, LIBRARIES)
    assert [point.symbol for point in points] == ["cuLaunchKernel"]
    by_name = {miss.symbol: miss for miss in missed}
    assert by_name["cuEventRecord"].is_expected and "probes.tier" in by_name["cuEventRecord"].reason
    assert by_name["cuMemcpyBatchAsync"].is_expected
    assert not by_name["cuMemFree_v2"].is_expected
    assert len(plan(parsed, LIBRARIES, tier=Tier.T2)[0]) == 2


def test_a_new_variant_of_a_known_name_is_told_and_not_probed(parse: Parse) -> None:
    points, missed = plan(parse(["cuMemAlloc_v3"], {0: PUSH}), LIBRARIES)
    assert not points
    (found,) = [miss for miss in missed if miss.symbol == "cuMemAlloc_v3"]
    assert "new variant of cuMemAlloc_v2" in found.reason and not found.is_expected


def test_a_probe_that_is_there_already_shows_in_memory(parse: Parse, tmp_path: Path) -> None:
    parsed = parse(["cuLaunchKernel"], {0: PUSH})
    points = plan(parsed, LIBRARIES)[0]
    start = 0x10000
    mapping = Mapping(start, start + 0x1000, CODE_OFFSET, (0, 0), 2, "/lib/libcuda.so.1", False)
    (tmp_path / "42").mkdir()
    memory = tmp_path / "42" / "mem"

    def seen(first: int) -> bool:
        memory.write_bytes(bytes(start) + bytes([first]) + PUSH[1:])
        return is_probed(tmp_path, 42, mapping, parsed.library.fd, points)

    assert not seen(PUSH[0])
    assert seen(0xCC)
    assert seen(0xE8)
    memory.unlink()
    assert not is_probed(tmp_path, 42, mapping, parsed.library.fd, points)


def test_an_instruction_that_is_a_call_by_itself_proves_nothing(parse: Parse, tmp_path: Path) -> None:
    parsed = parse(["cuLaunchKernel"], {0: b"\xe8\0\0\0\0"})
    mapping = Mapping(0, 0x1000, CODE_OFFSET, (0, 0), 2, "/lib/libcuda.so.1", False)
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "mem").write_bytes(b"\xe8\0\0\0\0")
    assert not is_probed(tmp_path, 42, mapping, parsed.library.fd, plan(parsed, LIBRARIES)[0])


def test_rung_p_leaves_out_what_is_not_essential_and_says_so(parse: Parse) -> None:
    points, missed = plan(
        parse(["cuLaunchKernel", "cuMemsetD8_v2"], {0: PUSH, 1: PUSH}), LIBRARIES, essential_only=True
    )
    assert [point.symbol for point in points] == ["cuLaunchKernel"]
    assert {miss.symbol: miss.reason for miss in missed}[
        "cuMemsetD8_v2"
    ] == "left out on rung P: slow to detach"


def test_a_forged_library_names_a_bounded_number_of_new_variants(parse: Parse) -> None:
    names = [f"cuMemAlloc_v{number}" for number in range(3, 3 + VARIANTS_LIMIT + 5)]
    _, missed = plan(parse(names, {}), LIBRARIES)
    told = [each for each in missed if "new variant" in each.reason]
    assert len(told) == VARIANTS_LIMIT + 1
    assert (told[-1].symbol, told[-1].reason) == ("*", "5 more new variants")
