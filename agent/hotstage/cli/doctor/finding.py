# SPDX-License-Identifier: Apache-2.0
"""What a check says: values only. Nothing looks, tries or prints here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a thing stands; the words of the JSON report."""

    OK = "ok"
    ABSENT = "absent"
    """Not there, and nothing that hotstage does today is missing without it."""
    WARN = "warn"
    """Something is missing or worse than it could be; hotstage runs."""
    FAIL = "fail"
    """hotstage cannot run, or sees only a part of the host."""
    UNKNOWN = "unknown"
    """It could not be looked at (no right, no answer in time); the detail says why."""


class Area(StrEnum):
    """Groups of checks, in the order in which one would ask; `--only` takes these words."""

    KERNEL = "kernel"
    PRIVILEGES = "privileges"
    PROBES = "probes"
    COMPILERS = "compilers"
    TRACEPOINTS = "tracepoints"
    LIBRARIES = "libraries"
    GPU = "gpu"
    CONFIGURATION = "configuration"
    PLACES = "places"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    `detail` is a sentence with the figures, `remedy` the command or key that mends it, `features` what
    depends on it. `data` holds the same figures for machines: JSON values, keys with units. `is_permission`:
    what is missing is a right, not a part.
    """

    area: Area
    name: str
    status: Status
    detail: str
    remedy: str | None = None
    is_permission: bool = False
    features: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


def plural(count: int, noun: str) -> str:
    """`1 process`, `3 processes`."""
    ending = "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{'' if count == 1 else ending}"
