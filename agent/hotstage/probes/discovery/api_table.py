# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's table of functions, read from its file: which function stands in which slot.

`OrtGetApiBase` hands out a pair of functions; the second one its version's text, the first one the table
(onnxruntime_c_api.h). Both tables are constants, so the file has them as relocations and the functions take
their addresses: it is enough to read, and nothing of the library is run. All that is found must fit together:
exactly one thing that the first function takes may be a table as long as the version's, of functions that the
library's own unwind table lists. A file that says otherwise is refused, with the reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.catalogue.onnxruntime import BASE_FUNCTION, TABLE_SIZES, table_size
from hotstage.probes.catalogue.spec import CallSpec
from hotstage.probes.discovery.code_references import references
from hotstage.probes.discovery.elf import ElfError, ElfFile, Symbol
from hotstage.probes.discovery.elf_pointers import Pointers, read_pointers
from hotstage.probes.discovery.elf_unwind import function_begins

TABLE_LIMIT = 2048
"""Functions of a table that are looked at."""
_CODE_LIMIT = 512
_REFERENCES_LIMIT = 64
_NOWHERE = (1 << 63) - 1
_VERSION_BYTES = 64
_VERSION = re.compile(rb"1\.(\d{1,4})\.\d+[0-9A-Za-z.+-]*\0")
# What compilers begin a function with: endbr64, push, jmp, moves, lea, and the arithmetic of a first test.
_BEGIN = re.compile(
    rb"\xf3\x0f\x1e\xfa|\x41?[\x50-\x57]|\xe9|[\xb8-\xbf]"
    rb"|[\x40-\x4f]?[\x29\x2b\x31\x33\x39\x3b\x81\x83\x84\x85\x89\x8b\x8d]",
)


@dataclass(frozen=True, slots=True)
class ApiTable:
    """What a library's file says of its table, or why nothing is taken from it.

    `entries`: functions that stand in a row from its first slot on; what the linker put right behind the
    table counts along. `known`: how many of them the catalogue's list of versions names.
    """

    version: str | None
    entries: int
    known: int
    refusal: str | None = None
    how: str = "read from the relocations of its file"


@dataclass(frozen=True, slots=True)
class _Image:
    fd: int
    elf: ElfFile
    pointers: Pointers
    begins: NDArray[np.int64]

    def references(self, function: int) -> list[int]:
        """Addresses that the function takes. Raises ElfError where none begins there."""
        if not self.is_begin([function])[0]:
            raise ElfError(f"no function begins at {function:#x}")
        behind = self.begins[np.searchsorted(self.begins, function, "right") :][:1]
        length = min(int(behind[0]) - function, _CODE_LIMIT) if len(behind) else _CODE_LIMIT
        offset = self.code_offset(function)
        if offset is None:
            raise ElfError("its code lies outside the executable part")
        found = list(references(os.pread(self.fd, length, offset), function, self.elf.machine))
        if len(found) > _REFERENCES_LIMIT:
            raise ElfError(f"its code takes {len(found)} addresses")
        return found

    def is_begin(self, addresses: list[int]) -> NDArray[np.bool_]:
        """(len(addresses),): whether a function begins there and its code is in the file."""
        wanted = np.array([min(address, _NOWHERE) for address in addresses], np.int64)
        places = np.searchsorted(self.begins, wanted)
        listed = np.append(self.begins, _NOWHERE)[places] == wanted
        is_code = [self.code_offset(address) is not None for address in addresses]
        found: NDArray[np.bool_] = listed & np.array(is_code, np.bool_)
        return found

    def code_offset(self, address: int) -> int | None:
        return next(
            (
                address - segment.address + segment.offset
                for segment in self.elf.segments
                if segment.is_executable and segment.address <= address < segment.address + segment.file_size
            ),
            None,
        )

    def text_offset(self, address: int) -> int | None:
        return next(
            (
                address - segment.address + segment.offset
                for segment in self.elf.segments
                if not segment.is_writable
                and segment.address <= address < segment.address + segment.file_size
            ),
            None,
        )


def read_api_table(
    fd: int, elf: ElfFile, calls: Iterable[CallSpec]
) -> tuple[ApiTable, dict[str, Symbol], dict[str, str]]:
    """The table, the rows that may be probed (name → where in the file), the others of it (name → why not).

    Never raises for what the file says: then the table has a refusal, and there are no rows.
    """
    version: str | None = None
    entries = known = 0
    try:
        image = _Image(fd, elf, read_pointers(fd), function_begins(fd))
        first, second = _base(image)
        version = _version(image, second)
        known = table_size(int(version.split(".")[1]))
        table = _table(image, first, known)
        entries = len(table)
    except ElfError as error:
        return ApiTable(version, entries, known, refusal=str(error)), {}, {}
    found, refused = _rows(image, table[:known], calls)
    return ApiTable(version, entries, known), found, refused


def _base(image: _Image) -> tuple[int, int]:
    """The two functions behind `OrtGetApiBase`."""
    exported = image.elf.functions.get(BASE_FUNCTION)
    if exported is None:
        raise ElfError(f"it does not export {BASE_FUNCTION}")
    address = _address(image.elf, exported.offset)
    pairs = {pair for place in image.references(address) if (pair := _pair(image, place)) is not None}
    if len(pairs) != 1:
        raise ElfError(f"{BASE_FUNCTION} hands out {len(pairs)} things that may be its base")
    return pairs.pop()


def _pair(image: _Image, place: int) -> tuple[int, int] | None:
    found = image.pointers.run(place, 2)
    return (found[0], found[1]) if len(found) == 2 and image.is_begin(found).all() else None


def _version(image: _Image, function: int) -> str:
    texts = {text for place in image.references(function) if (text := _version_text(image, place))}
    if len(texts) != 1:
        raise ElfError("it does not say a version 1.N that is known how to read")
    version = texts.pop()
    if int(version.split(".")[1]) < min(TABLE_SIZES):
        raise ElfError(f"version {version} is older than the first table")
    return version


def _version_text(image: _Image, place: int) -> str | None:
    offset = image.text_offset(place)
    match = None if offset is None else _VERSION.match(os.pread(image.fd, _VERSION_BYTES, offset))
    return match[0][:-1].decode("ascii") if match else None


def _table(image: _Image, function: int, least: int) -> list[int]:
    """The addresses in its slots, at least `least` of them."""
    runs = {place: _functions(image, place) for place in image.references(function)}
    tables = {place: run for place, run in runs.items() if len(run) >= least}
    if len(tables) == 1:
        return next(iter(tables.values()))
    if tables:
        raise ElfError(f"{len(tables)} tables of functions may be meant")
    longest = max(map(len, runs.values()), default=0)
    raise ElfError(f"its table has {longest} functions where its version has at least {least}")


def _functions(image: _Image, place: int) -> list[int]:
    """What stands in a row from there on and begins a function."""
    run = image.pointers.run(place, TABLE_LIMIT)
    others = np.flatnonzero(~image.is_begin(run))
    return run[: others[0]] if len(others) else run


def _rows(
    image: _Image, table: list[int], calls: Iterable[CallSpec]
) -> tuple[dict[str, Symbol], dict[str, str]]:
    """A row whose function stands in another slot, too, would count that one's calls along."""
    found: dict[str, Symbol] = {}
    refused: dict[str, str] = {}
    for call in calls:
        if call.slot is None or call.slot >= len(table):
            continue
        address = table[call.slot]
        offset = image.code_offset(address)
        assert offset is not None
        if table.count(address) > 1:
            refused[call.name] = "its function stands in several slots of the table"
        elif image.elf.machine == "x86_64" and not _BEGIN.match(os.pread(image.fd, 8, offset)):
            refused[call.name] = "its code begins like no function"
        else:
            found[call.name] = Symbol(call.name, offset, 0)
    return found, refused


def _address(elf: ElfFile, offset: int) -> int:
    for segment in elf.segments:
        if segment.is_executable and segment.offset <= offset < segment.offset + segment.file_size:
            return offset - segment.offset + segment.address
    raise ElfError("its code lies outside the executable part")
