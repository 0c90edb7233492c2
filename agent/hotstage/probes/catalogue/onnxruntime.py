# SPDX-License-Identifier: Apache-2.0
"""libonnxruntime.so.1: what runs a model, makes or ends its session, or moves its tensors, counted and timed.

It exports OrtGetApiBase alone; all calls go through the table OrtApi, whose order is kept for ever and which
grows at its end only. A row's slot and the sizes are those of `ort_api_1_to_N` and of the static_asserts
behind it (MIT: onnxruntime/core/session/onnxruntime_c_api.cc, and the headers of its releases).
"""

from __future__ import annotations

from hotstage.probes.catalogue.spec import Answer, CallSpec, Family, Layer, LibrarySpec, Tier
from hotstage.probes.loader.base import PointKind

BASE_FUNCTION = "OrtGetApiBase"

TABLE_SIZES = {
    **{1: 102, 2: 119, 3: 125, 4: 127, 5: 150, 6: 158, 7: 162, 8: 170, 9: 192, 10: 204, 11: 210, 12: 219},
    **{13: 225, 14: 239, 15: 255, 16: 266, 17: 276, 18: 280, 20: 285, 22: 318, 23: 390, 24: 412},
}
"""API version (the N of release 1.N) → functions of its table; a version that is left out added none."""

_CALLS = (
    # id, name, slot, since
    (470, "OrtRun", 9, ""),
    (471, "OrtRunAsync", 260, "1.16"),
    (472, "OrtRunWithBinding", 133, "1.5"),
    (473, "OrtCreateSession", 7, ""),
    (474, "OrtCreateSessionFromArray", 8, ""),
    (475, "OrtCreateSessionWithPrepackedWeightsContainer", 168, "1.8"),
    (476, "OrtCreateSessionFromArrayWithPrepackedWeightsContainer", 169, "1.8"),
    (477, "OrtReleaseSession", 95, ""),
    (478, "OrtSynchronizeBoundInputs", 202, "1.10"),
    (479, "OrtSynchronizeBoundOutputs", 203, "1.10"),
    (480, "OrtCopyTensors", 386, "1.23"),
)
_ESSENTIAL = frozenset(("OrtRun", "OrtRunWithBinding", "OrtCreateSession"))
_WITHOUT_ANSWER = frozenset(("OrtReleaseSession",))

ONNX_RUNTIME = LibrarySpec(
    kind="libonnxruntime",
    layer=Layer.LIBRARY,
    absent="not in its table of functions",
    calls=tuple(
        CallSpec(
            call_id=call_id,
            name=name,
            kind=PointKind.OUTER,
            family=Family.INFERENCE,
            slot=slot,
            answer=Answer.NOTHING if name in _WITHOUT_ANSWER else Answer.POINTER,
            is_essential=name in _ESSENTIAL,
            tier=Tier.T0,
            since=since,
        )
        for call_id, name, slot, since in _CALLS
    ),
)


def table_size(api: int) -> int:
    """How many functions the table of this version has; of one that is newer than the list, at least."""
    return TABLE_SIZES[max(version for version in TABLE_SIZES if version <= api)]
