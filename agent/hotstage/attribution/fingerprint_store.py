# SPDX-License-Identifier: Apache-2.0
"""The fingerprints in the state directory: one JSON file, written whole and renamed, bounded, with a version.

What cannot be read is put aside as `fingerprints.json.bad` and told; learning begins anew.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from hotstage.attribution.fingerprints import FingerprintBook, FunctionCounts, Program

FILE_NAME = "fingerprints.json"
VERSION = 1
BYTES_LIMIT = 32 << 20

log = logging.getLogger(__name__)


class FingerprintFile:
    """`load` never raises; `save` does nothing when nothing has moved."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self.error: str | None = None
        """Why the last write failed; None when it did not."""

    def load(self, book: FingerprintBook) -> int:
        """Programs that were added to the book."""
        try:
            if self._path.stat().st_size > BYTES_LIMIT:
                raise ValueError(f"larger than {BYTES_LIMIT} bytes")
            programs = _programs(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            log.warning("fingerprints are not read, learning begins anew", extra={"reason": str(error)})
            self._put_aside()
            return 0
        for key, program in programs:
            book.add(key, program)
        return len(programs)

    def save(self, book: FingerprintBook) -> bool:
        """Whether the file holds the book now."""
        if not book.has_moved:
            return True
        body = {"version": VERSION, "programs": {key: _program(each) for key, each in book.programs()}}
        temporary = self._path.with_suffix(".tmp")
        try:
            temporary.write_text(json.dumps(body, separators=(",", ":")))
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

    def _put_aside(self) -> None:
        try:
            self._path.replace(self._path.with_suffix(".json.bad"))
        except OSError:
            self.error = f"{self._path} cannot be put aside"


def _program(program: Program) -> dict[str, Any]:
    return {
        "name": program.name,
        "functions": {
            f"{name_hash:016x}": {
                "name": counts.name,
                "launches": [[*place, count] for place, count in sorted(counts.launches.items())],
            }
            for name_hash, counts in program.functions.items()
        },
    }


def _programs(body: Any) -> list[tuple[str, Program]]:
    """Raises ValueError, TypeError, KeyError or AttributeError where it is not what `save` writes."""
    if body["version"] != VERSION:
        raise ValueError(f"version {body['version']!r}, this agent writes {VERSION}")
    found: list[tuple[str, Program]] = []
    for key, raw in body["programs"].items():
        program = Program(str(raw["name"])[:128], moved=False)
        for name_hash, function in raw["functions"].items():
            counts = FunctionCounts(str(function["name"])[:64])
            for stage, modality, count in function["launches"]:
                counts.launches[int(stage), int(modality)] = int(count)
            program.functions[int(name_hash, 16)] = counts
        found.append((str(key)[:64], program))
    return found
