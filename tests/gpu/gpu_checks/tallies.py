# SPDX-License-Identifier: Apache-2.0
"""Tallies by exported symbol, by CUPTI's name and by hotstage's call, made comparable. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hotstage.probes.catalogue.cuda_driver import CUDA_DRIVER

CALL_OF = {symbol: call.name for symbol, call in CUDA_DRIVER.by_symbol().items()}
"""Exported symbol → the call that it is counted as."""


def by_call(tally: Mapping[str, int]) -> Counter[str]:
    """Calls by symbol → by catalogued call; what the catalogue does not have is left out."""
    folded: Counter[str] = Counter()
    for symbol, count in tally.items():
        if symbol in CALL_OF:
            folded[CALL_OF[symbol]] += count
    return folded


@dataclass(frozen=True, slots=True)
class CuptiTally:
    """What the injected library wrote. `status` is CUPTI's own: 0 it worked, -1 it was not there."""

    status: int
    beyond: int
    by_name: Mapping[str, int]


def read_cupti(text: str) -> CuptiTally:
    """Parse the file of `native/cupti_counts.c`."""
    numbers = {"#status": -1, "#beyond": 0}
    by_name: Counter[str] = Counter()
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name in numbers:
            numbers[name] = int(value)
        else:
            by_name[name] += int(value)
    return CuptiTally(numbers["#status"], numbers["#beyond"], by_name)


def rows(
    counted: Mapping[str, int], made: Mapping[str, int] | None, cupti: Mapping[str, int] | None
) -> list[dict[str, Any]]:
    """One row per call that anybody knows of. `agrees` is False for a difference that nothing explains.

    What the program tallied is the truth where there is one: CUPTI may then miss a call, which is said.
    """
    names = sorted({*counted, *(made or {}), *(cupti or {})})
    return [_row(name, counted.get(name, 0), _of(made, name), _of(cupti, name)) for name in names]


def _of(tally: Mapping[str, int] | None, name: str) -> int | None:
    return None if tally is None else tally.get(name, 0)


def _row(call: str, counted: int, made: int | None, cupti: int | None) -> dict[str, Any]:
    truth = cupti if made is None else made
    note = ""
    if truth is not None and counted != truth:
        note = f"counted {counted}, {'CUPTI saw' if made is None else 'made'} {truth}"
    elif made is not None and cupti is not None and cupti != made:
        note = f"CUPTI reports {cupti}; what was made and what was counted agree"
    return {
        "call": call,
        "made": made,
        "counted": counted,
        "cupti": cupti,
        "agrees": truth is None or counted == truth,
        "note": note,
    }
