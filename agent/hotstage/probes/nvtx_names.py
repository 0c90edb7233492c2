# SPDX-License-Identifier: Apache-2.0
"""Names of NVTX ranges that the kernel has not seen before, decided on by the rules of `hotstage_marks.nvtx`.

A name is decided once, for all processes, and stays decided; ranges that come before that are nothing.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping

import numpy as np

from hotstage.probes import bpf
from hotstage.probes.maps import layout
from hotstage.probes.maps.reader import HashReader

log = logging.getLogger(__name__)

_KEY_DTYPE = np.dtype([("hash", "<u8")])
_NOTHING = layout.NO_STAGE | (layout.MODALITIES - 1) << 8
_SOURCE = layout.Source.NVTX << 40

StageWord = Callable[[str], int | None]
"""Name → stage | modality << 8, None for no stage: as `hotstage_marks.nvtx.stage_word`."""


class RangeNames:
    """The maps `nvtx_unknown` and `nvtx_decisions`. One thread calls."""

    def __init__(self, fds: Mapping[str, int], stage_word: StageWord) -> None:
        self._unknown = HashReader(fds["nvtx_unknown"], _KEY_DTYPE, layout.NVTX_NAME_DTYPE)
        self._decisions = fds["nvtx_decisions"]
        self._stage_word = stage_word
        self.decided = 0
        self.refused = 0
        """Names that found no room among the decisions: their ranges are nothing."""

    def resolve(self) -> None:
        """Decide on every name that the kernel has reported since the last call."""
        keys, rows = self._unknown.read()
        for key, row in zip(keys, rows, strict=True):
            word = word_of(self._stage_word, bytes(row["text"]))
            try:
                bpf.update(self._decisions, key.tobytes(), struct.pack("<Q", word))
                self.decided += 1
            except OSError:
                self.refused += 1
        if len(keys):
            self._unknown.delete(keys.copy())


def word_of(stage_word: StageWord, text: bytes) -> int:
    """What a range of that name is, as the kernel keeps it: a stage with its modality, or no stage."""
    word = stage_word(text.decode("utf-8", "replace"))
    return _NOTHING if word is None else word | _SOURCE


def range_names(fds: Mapping[str, int]) -> RangeNames | None:
    """With the rules that the marks' package brings; None, and a line in the log, where it has no library."""
    from hotstage_marks.nvtx import stage_word

    try:
        stage_word("probe")
    except OSError as error:
        log.warning("NVTX ranges of PyTorch are not read: no rules", extra={"reason": str(error)})
        return None
    return RangeNames(fds, stage_word)
