# SPDX-License-Identifier: Apache-2.0
"""What a library's trial found: values only, shown by coverage."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PlacementVerdict(StrEnum):
    """Whether probes were tried on this library before everybody got them: of the driver those behind the
    first instruction, of others those on it.
    """

    VERIFIED = "verified"
    """Probed in one process first: each call was counted, with the arguments and the result it had."""
    REFUTED = "refuted"
    """That process crashed or saw something else: the driver's probes stand at the symbols, at about ten
    times the cost; another library is not probed.
    """
    UNVERIFIED = "unverified"
    """It could not be tried: the probes stand where the bytes alone allow it."""
    UNUSED = "unused"
    """No probe of this driver stands behind the first instruction."""


@dataclass(frozen=True, slots=True)
class AddressAudit:
    """What the library's own `cuGetProcAddress` hands out, against what it exports.

    `internal`: look-ups whose answer is no exported function, so that calls through it would meet no probe.
    `unprobed`: exported functions that it hands out for catalogued names at the driver's own version, and
    that the catalogue does not list. Both name 32 at most; `asked` and `answered` count look-ups.
    """

    asked: int
    answered: int
    internal: tuple[str, ...]
    unprobed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrialReport:
    """One library's trial; `reason` says why the placement is refuted or unverified.

    `functions` were probed and called there; `calls` of them were counted. `audit` is None where there was
    none: no such function, or no answer.
    """

    placement: PlacementVerdict
    reason: str | None
    calls: int
    audit: AddressAudit | None
    driver_version: int | None
    """As `cuDriverGetVersion` of this library says, 12040 for 12.4; None where it did not answer."""
    seconds: float
    functions: tuple[str, ...] = ()
