# SPDX-License-Identifier: Apache-2.0
"""How cut up an allocator's free memory is, from its segments and blocks: arithmetic on arrays, no more.

A segment is what the allocator got from the driver, a block what it has given out of one. What is free lies
between the blocks; only within one segment can it be joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

FREE_SHARE_MIN = 0.02
"""Of the device: where less is free, a ratio of it says nothing."""


class Basis(StrEnum):
    """What a fragmentation is computed from, the best first."""

    TORCH = "torch"
    """Segments and blocks of PyTorch's caching allocator: exact."""
    POOL = "pool"
    """The allocator's sums alone: how much of what it holds is free, not how it is cut."""


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """One allocator on one device. Bytes; NaN and None where the basis does not say."""

    basis: Basis
    reserved_bytes: int
    allocated_bytes: int
    requested_bytes: int | None = None
    """Before the allocator's rounding; None where it is not known of every block."""
    largest_free_bytes: int | None = None
    free_blocks: int | None = None
    inactive_split_bytes: int | None = None
    """Free in segments that hold a block: cannot be given back to the driver."""
    reason: str | None = None
    """Why the basis is no better one."""

    @property
    def free_bytes(self) -> int:
        """Held and not given out."""
        return self.reserved_bytes - self.allocated_bytes

    @property
    def slack_ratio(self) -> float:
        """Of what is held, the share that is free; NaN where nothing is held."""
        return _ratio(self.free_bytes, self.reserved_bytes)

    @property
    def split_ratio(self) -> float:
        """Of what is held, the share that is free and bound by a block beside it."""
        return _ratio(self.inactive_split_bytes, self.reserved_bytes)

    @property
    def internal_ratio(self) -> float:
        """Of what is given out, the share that nobody asked for."""
        if self.requested_bytes is None:
            return float("nan")
        return _ratio(self.allocated_bytes - self.requested_bytes, self.allocated_bytes)

    def external_ratio(self, device_bytes: int | None = None) -> float:
        """(free - largest free block) / free, the seeds' fragmentation; NaN where nothing is free.

        With the size of the device it is NaN below `FREE_SHARE_MIN` of it, too.
        """
        if self.largest_free_bytes is None:
            return float("nan")
        if device_bytes is not None and self.free_bytes < FREE_SHARE_MIN * device_bytes:
            return float("nan")
        return _ratio(self.free_bytes - self.largest_free_bytes, self.free_bytes)


def from_blocks(
    segments: NDArray[np.uint64], blocks: NDArray[np.uint64], requested: NDArray[np.uint64]
) -> Fragmentation:
    """Exact: `segments` (S, 2) and `blocks` (B, 2) are address and bytes, in any order, all of one device.

    `requested` (B,) is 0 where unknown. Raises ValueError if segments or blocks overlap, or a block lies
    outside every segment.
    """
    segments = segments[np.argsort(segments[:, 0])]
    blocks = blocks[np.argsort(blocks[:, 0])]
    starts, ends = segments[:, 0], segments.sum(1)
    block_starts, block_ends = blocks[:, 0], blocks.sum(1)
    if (ends[:-1] > starts[1:]).any() or (block_ends[:-1] > block_starts[1:]).any():
        raise ValueError("two of them overlap")
    home = np.searchsorted(starts, block_starts, side="right") - 1
    if (home < 0).any() or (block_ends > ends[home]).any():
        raise ValueError("a block lies outside every segment")
    # Along the addresses, what opens a gap and what closes one take turns; many gaps have no bytes.
    opens = np.sort(np.concatenate([starts, block_ends]))
    gaps = np.sort(np.concatenate([block_starts, ends])) - opens
    is_bound = (
        np.bincount(home, minlength=len(segments))[np.searchsorted(starts, opens, side="right") - 1] > 0
    )
    is_known = bool((requested > 0).all())
    return Fragmentation(
        basis=Basis.TORCH,
        reserved_bytes=int(segments[:, 1].sum()),
        allocated_bytes=int(blocks[:, 1].sum()),
        requested_bytes=int(requested.sum()) if is_known else None,
        largest_free_bytes=int(gaps.max(initial=0)),
        free_blocks=int(np.count_nonzero(gaps)),
        inactive_split_bytes=int(gaps[is_bound].sum()),
    )


def from_sums(reserved_bytes: int, allocated_bytes: int, reason: str) -> Fragmentation:
    """From an allocator's own sums: slack and no more, for the `reason`."""
    return Fragmentation(Basis.POOL, reserved_bytes, allocated_bytes, reason=reason)


def _ratio(part: int | None, whole: int) -> float:
    return part / whole if part is not None and whole else float("nan")
