# SPDX-License-Identifier: Apache-2.0
"""Marks: which request is in which stage, told to a watcher, or to nobody for next to nothing.

    import hotstage_marks as marks

    with marks.request(rid, endpoint="/v1/chat/completions", instance="i-0", model="vlm"):
        with marks.stage("vision_encode", modality="image", tokens=1024):
            encode(image)
        marks.tokens(17)
    with marks.batch([("r-1", "llm_prefill", 512), ("r-2", "llm_decode", 1)]):
        step()
    with marks.stage("my_reranker"):  # a name of the server's own
        rerank()

`stage` is for synchronous work on one thread (CUDA calls in between count for it); `span` is for the request
alone and may cross `await` and threads. Nothing here raises, blocks, or reads a payload. A process may make
up 32 stages; the next count as `other`. Without the compiled extension every call does nothing and
`is_native` is False.
"""

from __future__ import annotations

try:
    from hotstage_marks._native import (
        Batch,
        Request,
        Scope,
        batch,
        current_request,
        define_stage,
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
        statistics,
        tokens,
    )

    is_native = True
except ImportError:
    from hotstage_marks._silent import (  # type: ignore[assignment]
        Batch,
        Request,
        Scope,
        batch,
        current_request,
        define_stage,
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
        statistics,
        tokens,
    )

    is_native = False

from hotstage_marks._embedding import embedding
from hotstage_marks._staged import staged

__all__ = [
    "Batch",
    "Request",
    "Scope",
    "batch",
    "current_request",
    "define_stage",
    "digest",
    "embedding",
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
    "statistics",
    "tokens",
]
