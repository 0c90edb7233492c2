# SPDX-License-Identifier: Apache-2.0
"""The fingerprints in the state directory: one JSON file, written whole and renamed, bounded, with a version.

What cannot be read, or says what `save` never writes, is put aside as `fingerprints.json.bad` and told;
learning begins anew.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from hotstage.attribution.fingerprints import (
    COUNT_LIMIT,
    FUNCTIONS_LIMIT,
    FingerprintBook,
    FunctionCounts,
    Program,
)
from hotstage.stages.stage import Modality, Stage
from hotstage.text import plain_line

FILE_NAME = "fingerprints.json"
VERSION = 1
BYTES_LIMIT = 32 << 20
_FLAGS = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
"""A pipe or a link in place of the file is no file of ours."""

_Launches = tuple[
    Annotated[int, Meta(ge=0, lt=len(Stage))],
    Annotated[int, Meta(ge=0, lt=len(Modality))],
    Annotated[int, Meta(gt=0, le=COUNT_LIMIT)],
]

log = logging.getLogger(__name__)


class _Function(msgspec.Struct):
    name: str
    launches: Annotated[list[_Launches], Meta(max_length=len(Stage) * len(Modality))]


class _Program(msgspec.Struct):
    name: str
    functions: Annotated[
        dict[Annotated[str, Meta(pattern="^[0-9a-f]{16}$")], _Function], Meta(max_length=FUNCTIONS_LIMIT)
    ]


class _Body(msgspec.Struct):
    version: int
    programs: dict[Annotated[str, Meta(max_length=64)], _Program]


class FingerprintFile:
    """`load` never raises; `save` does nothing when nothing has moved."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self.error: str | None = None
        """Why the last write failed; None when it did not."""

    def load(self, book: FingerprintBook) -> int:
        """Programs that were added to the book."""
        try:
            body = msgspec.json.decode(self._read(), type=_Body)
            if body.version != VERSION:
                raise ValueError(f"version {body.version!r}, this agent writes {VERSION}")
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
            reason = plain_line(str(error))
            log.warning("fingerprints are not read, learning begins anew", extra={"reason": reason})
            self._put_aside()
            return 0
        for key, raw in body.programs.items():
            book.add(key, _program(raw))
        return len(body.programs)

    def save(self, book: FingerprintBook) -> bool:
        """Whether the file holds the book now."""
        if not book.has_moved:
            return True
        temporary = self._path.with_suffix(".tmp")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS
            with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(_encoded(book))
            temporary.replace(self._path)
        except OSError as error:
            if self.error is None:
                log.warning("fingerprints are not written", extra={"reason": str(error)})
            self.error = str(error)
            return False
        self.error = None
        for _, program in book.programs():
            program.moved = False
        return True

    def _read(self) -> bytes:
        """Raises OSError, and ValueError where it is no file or too large."""
        with os.fdopen(os.open(self._path, os.O_RDONLY | _FLAGS), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is no regular file")
            raw = file.read(BYTES_LIMIT + 1)
        if len(raw) > BYTES_LIMIT:
            raise ValueError(f"larger than {BYTES_LIMIT} bytes")
        return raw

    def _put_aside(self) -> None:
        try:
            self._path.replace(self._path.with_suffix(".json.bad"))
        except OSError:
            self.error = f"{self._path} cannot be put aside"


def _encoded(book: FingerprintBook) -> bytes:
    """The programs met last that fit into BYTES_LIMIT, the one that was met longest ago first."""
    pieces: list[bytes] = []
    room = BYTES_LIMIT - 64
    for key, program in reversed(list(book.programs())):
        piece = msgspec.json.encode({key: _raw(program)})[1:-1]
        room -= len(piece) + 1
        if room < 0:
            break
        pieces.append(piece)
    return b'{"version":%d,"programs":{%b}}' % (VERSION, b",".join(reversed(pieces)))


def _raw(program: Program) -> _Program:
    functions = {
        f"{name_hash:016x}": _Function(
            counts.name, [(*place, count) for place, count in sorted(counts.launches.items())]
        )
        for name_hash, counts in program.functions.items()
    }
    return _Program(program.name, functions)


def _program(raw: _Program) -> Program:
    program = Program(plain_line(raw.name, 128), moved=False)
    for name_hash, function in raw.functions.items():
        launches = {(stage, modality): count for stage, modality, count in function.launches}
        program.functions[int(name_hash, 16)] = FunctionCounts(plain_line(function.name, 64), launches)
    return program
