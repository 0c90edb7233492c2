# SPDX-License-Identifier: Apache-2.0
"""What an event's body holds, as `sinks/events.py` of the agent writes it."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct


class Envelope(Struct, frozen=True):
    """The parts that formats place differently; `data` is passed on byte for byte."""

    source: str
    time: str
    data: Raw
    traceparent: str | None = None


_decode = msgspec.json.Decoder(Envelope).decode


def open_body(body: bytes) -> Envelope:
    """Raises msgspec.DecodeError for what no agent of ours has written."""
    return _decode(body)
