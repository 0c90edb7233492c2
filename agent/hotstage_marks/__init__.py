# SPDX-License-Identifier: Apache-2.0
"""Marks: which request is in which stage, told to a watcher, or to nobody for next to nothing.

    import hotstage_marks as marks

    with marks.request(rid, endpoint="/v1/chat/completions", instance="i-0", model="vlm"):
        with marks.stage("vision_encode", modality="image", tokens=1024):
            encode(image)
        marks.tokens(17)

`stage` is for synchronous work on one thread (CUDA calls in between count for it); `span` is for the request
alone and may cross `await` and threads. Nothing here raises, blocks, or reads a payload. Unknown stages count
as `other`. Without the compiled extension every call does nothing and `is_native` is False.
"""

from __future__ import annotations

try:
    from hotstage_marks._native import (
        Request,
        Scope,
        current_request,
        digest,
        is_watched,
        request,
        request_begin,
        request_end,
        request_hash,
        span,
        span_begin,
        span_end,
        stage,
        tokens,
    )

    is_native = True
except ImportError:
    from hotstage_marks._silent import (  # type: ignore[assignment]
        Request,
        Scope,
        current_request,
        digest,
        is_watched,
        request,
        request_begin,
        request_end,
        request_hash,
        span,
        span_begin,
        span_end,
        stage,
        tokens,
    )

    is_native = False

from hotstage_marks._batch import Batch, batch
from hotstage_marks._staged import staged

__all__ = [
    "Batch",
    "Request",
    "Scope",
    "batch",
    "current_request",
    "digest",
    "is_native",
    "is_watched",
    "request",
    "request_begin",
    "request_end",
    "request_hash",
    "span",
    "span_begin",
    "span_end",
    "stage",
    "staged",
    "tokens",
]
