# SPDX-License-Identifier: Apache-2.0
"""Tokens in flight by process, visual and text: from marks where there are some, else estimated from what is
copied to the device. Pure, but for the sums of copies seen before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.grouping import grouped
from hotstage.probes.catalogue.spec import Direction
from hotstage.probes.copies import DIRECTIONS, directions
from hotstage.probes.maps.conflict import TEXT, VISUAL, TokenBasis
from hotstage.probes.memory_sample import MOST_BYTES
from hotstage.probes.samples import CallSample
from hotstage.stages.request_class import MEDIA, input_tokens
from hotstage.stages.stage import Modality, Stage

VISUAL_STAGES = (Stage.vision_encode, Stage.video_encode)
TEXT_STAGES = (Stage.llm_prefill,)
STAGES_OF = {VISUAL: VISUAL_STAGES, TEXT: TEXT_STAGES}
"""Whose work takes the memory that tokens of a kind need: visual ones are encoded, all are prefilled."""

_VISUAL_MEDIA = [MEDIA.index(Modality.image), MEDIA.index(Modality.video)]
_VISUAL_BITS = np.uint64(sum(1 << stage for stage in VISUAL_STAGES))
_TEXT_BITS = np.uint64(sum(1 << stage for stage in TEXT_STAGES))
_TO_DEVICE = DIRECTIONS.index(Direction.HOST_TO_DEVICE)

MOST_TOKENS = 1 << 48
"""No process reads so many at once; what is beyond was made up, and is unknown."""


@dataclass(frozen=True, slots=True)
class Demand:
    """(visual, text) of one process.

    `tokens` are in flight: of the input of its requests, and what they have answered. `awaited` are those of
    them whose memory is still to come: not encoded yet, not prefilled yet (text and visual ones together).
    """

    basis: TokenBasis
    tokens: tuple[int, int]
    awaited: tuple[int, int]


UNKNOWN = Demand(TokenBasis.UNKNOWN, (0, 0), (0, 0))
"""Somebody said something that cannot be."""


def of_requests(rows: NDArray[np.void]) -> dict[int, Demand]:
    """REQUEST_DTYPE (R,) of `maps.layout`, in flight → pid → what marks say."""
    if not len(rows):
        return {}
    found = input_tokens(rows)
    visual, whole = found.media[:, _VISUAL_MEDIA].sum(axis=1), found.whole
    columns = (
        visual,
        whole - found.media.sum(axis=1) + rows["output_tokens"],
        np.where(rows["stage_mask"] & _VISUAL_BITS, 0, visual),
        np.where(rows["stage_mask"] & _TEXT_BITS, 0, whole),
    )
    pids, place = grouped(rows["tgid"])
    sums = np.stack([np.bincount(place, column, len(pids)) for column in columns], axis=1)
    possible: NDArray[np.bool_] = np.all((sums >= 0) & (sums <= MOST_TOKENS), axis=1)
    whole_sums = np.where(possible[:, None], sums, 0).astype(np.int64)
    return {
        pid: Demand(TokenBasis.KNOWN, (seen, read), (encode, prefill)) if is_possible else UNKNOWN
        for pid, (seen, read, encode, prefill), is_possible in zip(
            pids.tolist(), whole_sums.tolist(), possible.tolist(), strict=True
        )
    }


class Copies:
    """Tokens that processes without marks copied to the device since the look before. Not thread-safe."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, int], int] | None = None

    def look(
        self, calls: CallSample, marked: Iterable[int], token_bytes: Mapping[int, int]
    ) -> dict[int, Demand]:
        """pid → what was copied since, as tokens of which all memory is still to come; without `marked`
        processes, and empty at the first look. `token_bytes`: what is copied for one, by kind.
        `UNKNOWN` where more was copied than can be.
        """
        now = self._bytes(calls)
        before, self._before = self._before, now
        if before is None:
            return {}
        tokens: dict[int, list[int]] = {}
        impossible: set[int] = set()
        for (pid, kind), copied in now.items():
            grown = copied - before.get((pid, kind), 0)
            if grown > MOST_BYTES:
                impossible.add(pid)
            added = grown // token_bytes[kind]
            if added > 0:
                tokens.setdefault(pid, [0, 0])[kind] += added
        return {
            pid: UNKNOWN
            if pid in impossible
            else Demand(TokenBasis.ESTIMATED, (visual, text), (visual, visual + text))
            for pid, (visual, text) in tokens.items()
            if pid not in set(marked)
        }

    def _bytes(self, calls: CallSample) -> dict[tuple[int, int], int]:
        """(pid, kind) → bytes so far."""
        found: dict[tuple[int, int], int] = {}
        is_copy = directions(calls.keys) == _TO_DEVICE
        for kind, stages in STAGES_OF.items():
            chosen = np.flatnonzero(is_copy & np.isin(calls.keys["stage"], stages))
            for pid, copied in zip(
                calls.keys["tgid"][chosen].tolist(), calls.stats["bytes"][chosen].tolist(), strict=True
            ):
                found[pid, kind] = found.get((pid, kind), 0) + copied
        return found
