# SPDX-License-Identifier: Apache-2.0
"""Room set aside beside a database, so that on a full file system what has been kept can still be settled.

To mark or delete a row takes room as well, for a while. Without this a database that fills its own file
system could never get smaller again.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

RESERVE_BYTES = 512 << 10
"""More than the log ever holds: twice what is put into the file at a time."""


class Reserve:
    """A file `<database>-reserve`. Any process that writes to the database may take it and give it back."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(f"{database.name}-reserve")

    def hold(self) -> bool:
        """Whether the room is set aside, or could be if files can be made here at all."""
        try:
            if self._path.stat().st_size >= RESERVE_BYTES:
                return True
        except OSError:
            pass
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            return not _is_full(error)
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        except OSError as error:
            self.release()
            return not _is_full(error)
        finally:
            os.close(descriptor)
        return True

    def release(self) -> None:
        """Let what settles have the room."""
        with contextlib.suppress(OSError):
            self._path.unlink()


def _is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
