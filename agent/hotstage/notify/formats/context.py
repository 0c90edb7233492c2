# SPDX-License-Identifier: Apache-2.0
"""What a body is made from beside its event: where it comes from, and when it is sent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Context:
    """`sent_ns` is wall time; `resend_seconds` is how soon an alert that still fires is told again."""

    host: str
    explorer_url: str | None = None
    sent_ns: int = 0
    resend_seconds: float = 60.0
