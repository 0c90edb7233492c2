# SPDX-License-Identifier: Apache-2.0
"""Names on the wire. Ours are prefixed; the others are OpenTelemetry's semantic conventions 1.44.

The `gen_ai.*` and `hw.*` names are written here because they are still in development: the packages that hold
them rename them between releases, and a released name of ours never changes.
"""

from __future__ import annotations

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"
SERVICE_INSTANCE_ID = "service.instance.id"
HOST_ID = "host.id"
HOST_NAME = "host.name"
PROCESS_PID = "process.pid"
HW_ID = "hw.id"
HW_TYPE = "hw.type"
ERROR_TYPE = "error.type"
ERROR_OTHER = "_OTHER"
"""The conventions' value of `error.type` where no more is known."""

GEN_AI_OPERATION_NAME = "gen_ai.operation.name"
GEN_AI_REQUEST_MODEL = "gen_ai.request.model"
GEN_AI_INPUT_TOKENS = "gen_ai.usage.input_tokens"
GEN_AI_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"

STAGE = "hotstage.stage"
MODALITY = "hotstage.modality"
STAGE_RUNS = "hotstage.stage.runs"
"""How often the stage ran in this request; absent if once."""
STAGE_INTERVAL = "hotstage.stage.interval"
LAST_BEGIN_ONLY = "last_begin_only"
"""Value of `STAGE_INTERVAL`: it ran several times, of which only the last begin and the sum of the durations
are known. The span is a point at that begin, the sum is in `latency.<modality>.ms`."""
STAGES_UNENDED = "hotstage.stages.unended"
"""Stages that were still open when the request ended: nobody knows how long they took."""
CRITICAL_MS = "hotstage.critical_ms"
"""Of the request's duration, what this stage decided; over its stages and waits it adds up."""
TTFT_MS = "hotstage.ttft_ms"
TTFT_BASIS = "hotstage.ttft.basis"
ITL_MS = "hotstage.itl_ms"
LORA_RANK = "hotstage.lora.rank"
LORA_MODULE = "hotstage.lora.module"
TOKENS = "hotstage.tokens"
ENDPOINT = "hotstage.endpoint"
INSTANCE = "hotstage.instance"
REQUEST_ID = "hotstage.request.id"
OUTCOME = "hotstage.outcome"
LAUNCHES = "hotstage.launches"
CALL_ERRORS = "hotstage.call_errors"
SAMPLED_FOR = "hotstage.sampled_for"
TRACE_ORIGIN = "hotstage.trace.origin"
ORIGIN_REQUEST = "request"
ORIGIN_HOTSTAGE = "hotstage"
"""Value of `TRACE_ORIGIN`: the request came without a traceparent, the trace was made up here."""
WINDOW_IDS = "hotstage.window.ids"

WINDOW_OPENED = "hotstage.anomaly.window.opened"
WINDOW_CLOSED = "hotstage.anomaly.window.closed"
WINDOW_ID = "hotstage.window.id"
WINDOW_KIND = "hotstage.window.kind"
WINDOW_SEVERITY = "hotstage.window.severity"
WINDOW_SCORE = "hotstage.window.score"
WINDOW_SECONDS = "hotstage.window.seconds"
CAUSE_KIND = "hotstage.cause.kind"
CAUSE_CONFIDENCE = "hotstage.cause.confidence"


def wait_ms(name: str) -> str:
    """On a stage what its threads waited for (run_queue, sync, copy, alloc), on the request the waits between
    its stages (queue, delivery, unmarked); absent where unknown.
    """
    return f"hotstage.wait.{name}_ms"


_VISION = {"image": "vision"}


def latencies(modality: str, milliseconds: float) -> dict[str, float]:
    """`latency.<modality>.ms`; an image's also as `latency.vision.ms`."""
    names = (modality, *((_VISION[modality],) if modality in _VISION else ()))
    return {f"latency.{name}.ms": milliseconds for name in names}
