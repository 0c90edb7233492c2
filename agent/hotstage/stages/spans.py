# SPDX-License-Identifier: Apache-2.0
"""The rows that leave the tracker: stage spans, requests, processes. Layout only.

Times are CLOCK_MONOTONIC in ns. Names are ids of the pulse's `NameTable`. 0 tokens means nobody said.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hotstage.stages.stage import Modality, Stage

_NAME_FIELDS = [("endpoint", np.uint32), ("instance", np.uint32), ("model", np.uint32)]

SPAN_DTYPE = np.dtype(
    [
        ("request_hash", np.uint64),
        ("cgroup_id", np.uint64),
        ("began_ns", np.uint64),  # of the last begin
        ("duration_ns", np.uint64),  # ended: of all `count` spans together; open: the age at the pulse
        ("pid", np.uint32),
        ("tokens", np.uint32),  # ended: of all `count` spans together; open: as far as known
        ("count", np.uint16),  # ended: spans summed in this row, nearly always 1; open: 0
        ("stage", np.uint8),  # 32..63: one that its process made up; what that is, `label` says
        ("modality", np.uint8),
        ("is_open", np.bool_),
        ("label", np.uint16),  # the stage in `NameTable.stages`: the same in all processes, unlike `stage`
        # What threads that worked for these spans, or their share of a batch, spent waiting for a CPU and in
        # calls that wait, copy, allocate. NaN: nobody knows; so is all of a span that is open.
        ("run_queue_ns", np.float64),
        ("sync_ns", np.float64),
        ("copy_ns", np.float64),
        ("alloc_ns", np.float64),
        *_NAME_FIELDS,
    ]
)

REQUEST_DTYPE = np.dtype(
    [
        ("request_hash", np.uint64),
        ("cgroup_id", np.uint64),
        ("started_ns", np.uint64),
        ("ended_ns", np.uint64),  # 0 while in flight
        ("updated_ns", np.uint64),  # when a mark last spoke of it
        ("stage_mask", np.uint64),
        ("open_mask", np.uint64),
        ("launches", np.float64),  # its own and its shares of batches
        ("pid", np.uint32),
        ("output_tokens", np.uint32),
        ("errors", np.uint32),
        ("outcome", np.uint8),
        ("modality", np.uint8),  # by the stages it went through, see `modality_of_masks`
        *_NAME_FIELDS,
    ]
)

PROCESS_DTYPE = np.dtype(
    [
        ("pid", np.uint32),
        ("open_requests", np.uint32),
        ("launch_total", np.uint64),  # launch-class calls since the tracker first saw the process
        ("launch_delta", np.uint64),  # of them, since the last pulse
        ("unattributed_total", np.uint64),  # launches without a stage
        ("output_tokens_total", np.uint64),
        ("oldest_request_ns", np.uint64),  # start of its oldest open request, 0 = none
        ("call_since_ns", np.uint64),  # of the call it sits in longest, 0 = in none
        ("call_tid", np.uint32),
        ("call", np.uint16),
        ("call_stage", np.uint8),
        ("call_modality", np.uint8),
        ("is_dead", np.bool_),  # it has gone; such a row is seen once
        ("instance", np.uint32),
    ]
)

OUTCOME_OK, OUTCOME_ERROR, OUTCOME_CANCELLED, OUTCOME_REFUSED = range(4)

OUTCOME_LOST = 4
"""It vanished without an end: its process died, or the record of its end was lost."""

_ENCODERS = {
    Stage.vision_encode: Modality.image,
    Stage.audio_encode: Modality.audio,
    Stage.video_encode: Modality.video,
}
_FIRST_ENCODER = np.uint64(min(_ENCODERS))
_ENCODER_BITS = np.uint64((1 << len(_ENCODERS)) - 1)


def _modality_of(bits: int) -> Modality:
    """Of the encoders' bits alone, the lowest one first."""
    passed = [modality for place, modality in enumerate(_ENCODERS.values()) if bits >> place & 1]
    return Modality.mixed if len(passed) > 1 else passed[0] if passed else Modality.text


_MODALITY_BY_BITS = np.array([_modality_of(bits) for bits in range(1 << len(_ENCODERS))], np.uint8)
# The table needs the encoders' ids in a row.
assert list(_ENCODERS) == list(range(min(_ENCODERS), min(_ENCODERS) + len(_ENCODERS)))


def modality_of_masks(masks: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """(N,) stage masks → the requests' modality: the encoder they went through, `mixed` for several.

    A request without an encoder stage counts as text; so does one that has not reached its encoder yet.
    """
    found: NDArray[np.uint8] = _MODALITY_BY_BITS[masks >> _FIRST_ENCODER & _ENCODER_BITS]
    return found
