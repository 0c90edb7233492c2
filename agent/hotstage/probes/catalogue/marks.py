# SPDX-License-Identifier: Apache-2.0
"""The marks library: one exported function per mark, each with a program of its own.

The functions stand in `libhotstage_marks.so`; the Python extension and the NVTX injection stand on it.
"""

from __future__ import annotations

from hotstage.probes.catalogue.spec import CallSpec, Family, Layer, LibrarySpec
from hotstage.probes.loader.base import PointKind

_POINTS = (
    (480, "hotstage_mark_stage_begin", PointKind.STAGE_BEGIN),
    (481, "hotstage_mark_stage_end", PointKind.STAGE_END),
    (482, "hotstage_mark_span_begin", PointKind.SPAN_BEGIN),
    (483, "hotstage_mark_span_end", PointKind.SPAN_END),
    (484, "hotstage_mark_request_begin", PointKind.REQUEST_BEGIN),
    (485, "hotstage_mark_request_end", PointKind.REQUEST_END),
    (486, "hotstage_mark_tokens", PointKind.TOKENS),
    (487, "hotstage_mark_stage_name", PointKind.STAGE_NAME),
    (488, "hotstage_mark_batch_begin", PointKind.BATCH_BEGIN),
    (489, "hotstage_mark_batch_end", PointKind.BATCH_END),
    (490, "hotstage_mark_embedding", PointKind.EMBEDDING),
)

MARKS = LibrarySpec(
    kind="marks",
    layer=Layer.DRIVER,
    calls=tuple(
        CallSpec(call_id=call_id, name=symbol, kind=kind, family=Family.MARK, is_essential=True)
        for call_id, symbol, kind in _POINTS
    ),
)
