# SPDX-License-Identifier: Apache-2.0
"""The shipped files: where a watcher attaches, byte by byte."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

import hotstage_marks
from hotstage_marks import _native

LIBRARY = Path(hotstage_marks.__file__).with_name("libhotstage_marks.so")
POINTS = (
    "stage_begin",
    "stage_end",
    "span_begin",
    "span_end",
    "request_begin",
    "request_end",
    "tokens",
    "stage_name",
    "batch_begin",
    "batch_end",
    "embedding",
)
NOP_AND_RETURN = {
    "x86_64": bytes.fromhex("90c3"),
    "aarch64": bytes.fromhex("1f2003d5c0035fd6"),
}[platform.machine()]


@pytest.mark.parametrize("point", POINTS)
def test_a_probe_point_is_exported_and_is_a_nop_and_a_return(point):
    with LIBRARY.open("rb") as stream:
        elf = ELFFile(stream)
        (symbol,) = elf.get_section_by_name(".dynsym").get_symbol_by_name(f"hotstage_mark_{point}")
        assert symbol["st_info"]["type"] == "STT_FUNC"
        (offset,) = elf.address_offsets(symbol["st_value"], len(NOP_AND_RETURN))
        stream.seek(offset)
        assert stream.read(len(NOP_AND_RETURN)) == NOP_AND_RETURN


def test_calls_stay_inside_the_file_and_no_branch_tracking_is_promised():
    with LIBRARY.open("rb") as stream:
        elf = ELFFile(stream)
        dynamic = elf.get_section_by_name(".dynamic")
        assert any(tag.entry.d_tag == "DT_SYMBOLIC" for tag in dynamic.iter_tags())
        relocated = {
            elf.get_section_by_name(".dynsym").get_symbol(relocation["r_info_sym"]).name
            for section in elf.iter_sections("SHT_RELA")
            for relocation in section.iter_relocations()
        }
        assert not {name for name in relocated if name.startswith("hotstage_mark_")}
        assert elf.get_section_by_name(".note.gnu.property") is None


def test_the_extension_is_the_one_in_use():
    assert hotstage_marks.is_native


def test_the_extension_has_no_copy_of_its_own_and_stands_on_the_library_beside_it():
    with Path(_native.__file__).open("rb") as stream:
        elf = ELFFile(stream)
        tags = list(elf.get_section_by_name(".dynamic").iter_tags())
        assert "libhotstage_marks.so" in [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]
        assert [tag.runpath for tag in tags if tag.entry.d_tag == "DT_RUNPATH"] == ["$ORIGIN"]
        symbols = elf.get_section_by_name(".dynsym").iter_symbols()
        assert not [
            symbol.name
            for symbol in symbols
            if symbol.name.startswith("hotstage_") and symbol["st_shndx"] != "SHN_UNDEF"
        ]
