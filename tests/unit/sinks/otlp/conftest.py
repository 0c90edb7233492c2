# SPDX-License-Identifier: Apache-2.0
"""Requests as the kernel would finish them, and OpenTelemetry left as it was."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage

from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.sinks.otlp.notes import Note
from hotstage.sinks.otlp.sink import Identity

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
START = 1_000 * SECOND
OFFSET = 1_700_000_000 * SECOND


@pytest.fixture(autouse=True)
def plain_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No `OTEL_…` variable of whoever runs the tests, and its logger as before."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    logger = logging.getLogger("opentelemetry")
    handlers, propagate = list(logger.handlers), logger.propagate
    yield
    logger.handlers, logger.propagate = handlers, propagate


def an_image_request(
    number: int = 1, *, traceparent: str = SAMPLED, outcome: int = 0, at_ns: int = START, pid: int = 100
) -> np.void:
    """Encoded 30 ms long after 10 ms, prefilled 50 ms long after 45 ms, over after 100 ms."""
    request = KernelRequest(number, at_ns=at_ns, pid=pid)
    request.row["traceparent"] = traceparent.encode()
    request.begin(Stage.vision_encode, at_ns + 10 * MS, modality=Modality.image, tokens=576)
    request.end(Stage.vision_encode, at_ns + 40 * MS)
    request.begin(Stage.llm_prefill, at_ns + 45 * MS, modality=Modality.image, tokens=640)
    request.end(Stage.llm_prefill, at_ns + 95 * MS)
    return request.finished(at_ns + 100 * MS, outcome, output_tokens=12)


@pytest.fixture
def a_request() -> Callable[..., np.void]:
    return an_image_request


@pytest.fixture
def a_note() -> Callable[..., Note]:
    """`a_note(rows, opened=…)`."""

    def build(rows=(), *, opened=(), closed=(), open=(), at_ns=START, gpu_of_pid=None) -> Note:
        return Note(
            at_ns, OFFSET, np.array(list(rows), FINISHED_DTYPE), gpu_of_pid or {}, opened, closed, open
        )

    return build


@pytest.fixture
def identity() -> Identity:
    return Identity("host-1", "gpu-1", "0.1.0", OFFSET)
