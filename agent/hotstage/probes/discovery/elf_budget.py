# SPDX-License-Identifier: Apache-2.0
"""How much one look into a stranger's file may cost: bytes that are read and processor time, in total.

Each table of a file is bounded by itself; a forged one has the same bytes stand in many of them. A look-up
that ends by its own budget never counts as one that hangs, and a thread that nobody waits for any more ends,
too. Waiting (for a disk, for a processor) is no work and is not counted.
"""

from __future__ import annotations

import time

from hotstage.probes.discovery.elf import ElfError

PROCESSOR_SECONDS_LIMIT = 1.0
"""The largest library at hand takes a tenth of it; a look-up is given up after two seconds on the clock."""


class Budget:
    """Of the calling thread, from now on."""

    def __init__(self, bytes_limit: int) -> None:
        self._bytes_left = bytes_limit
        self._ends = time.thread_time() + PROCESSOR_SECONDS_LIMIT

    def take(self, length: int) -> None:
        """Before so many bytes are read and worked on. Raises ElfError where the budget is spent."""
        self._bytes_left -= length
        if self._bytes_left < 0:
            raise ElfError("its tables have more bytes than any real library's")
        if time.thread_time() > self._ends:
            raise ElfError("its tables take more work than any real library's")
