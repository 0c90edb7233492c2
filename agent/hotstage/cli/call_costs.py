# SPDX-License-Identifier: Apache-2.0
"""What the probes add to a call, as `/v1/coverage` and the bench have it, in one line for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TOLD = {
    "launch": "launch",
    "timed": "timed call",
    "timed_tails": "timed at tails_only",
    "timed_counts": "timed at counts_only",
    "mark": "mark",
    "nvtx": "NVTX push or pop",
    "page_fault": "page fault of a followed thread",
    "other_page_fault": "of any other",
    "step": "more for a stepped instruction",
    "sample": "more for a launch whose kernel is looked at",
    "told_bare": "more for a slow or failing call",
    "told": "the same with its stack",
}


def cost_of_a_call(costs: Mapping[str, Any]) -> str:
    """Classes with their ns a call, after the basis; without any where nothing was measured."""
    told = [f"{words} {costs[name]:.0f} ns" for name, words in _TOLD.items() if costs.get(name) is not None]
    return ": ".join([costs["basis"], *([", ".join(told)] if told else [])])
