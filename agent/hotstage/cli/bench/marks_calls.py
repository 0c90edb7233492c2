# SPDX-License-Identifier: Apache-2.0
"""The target of `bench marks` from Python: the same as marks_calls.c, and a decorated function besides.

    marks_calls.py PACKAGES CPU CALLS   ->   `ready WATCHED`, then after each line on stdin: `ns ns ns ...`

Run as a program; it imports `hotstage_marks` from the folder PACKAGES and nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from time import perf_counter_ns

MEMBERS = 8


def kinds() -> list[Callable[[int], int]]:
    """One function a kind: so many marks → the nanoseconds they took, the loop included."""
    import hotstage_marks as marks

    request = marks.request_begin("python", endpoint="/v1/vision", instance="i-0", model="vlm")
    members = [(f"python-{number}", "llm_decode", 4, "image") for number in range(MEMBERS)]
    for identifier, *_ in members:
        marks.request_begin(identifier, endpoint="/v1/vision", instance="i-0", model="vlm")

    def stage(calls: int) -> int:
        began = perf_counter_ns()
        for _ in repeat(None, calls):
            with marks.stage("vision_encode", modality="image", tokens=1024, request=request):
                pass
        return perf_counter_ns() - began

    def span(calls: int) -> int:
        began = perf_counter_ns()
        for _ in repeat(None, calls):
            with marks.span("queue", modality="image", tokens=1024, request=request):
                pass
        return perf_counter_ns() - began

    def tokens(calls: int) -> int:
        tell = request.tokens
        began = perf_counter_ns()
        for _ in repeat(None, calls):
            tell(17)
        return perf_counter_ns() - began

    def batch(calls: int) -> int:
        began = perf_counter_ns()
        for _ in repeat(None, calls):
            with marks.batch(members):
                pass
        return perf_counter_ns() - began

    def whole_request(calls: int) -> int:
        began = perf_counter_ns()
        for _ in repeat(None, calls):
            with marks.request("python-other", endpoint="/v1/vision", instance="i-0", model="vlm"):
                pass
        return perf_counter_ns() - began

    @marks.staged("vision_encode", modality="image", tokens=1024, request=request)
    def decorated() -> None:
        pass

    def staged(calls: int) -> int:
        began = perf_counter_ns()
        for _ in repeat(None, calls):
            decorated()
        return perf_counter_ns() - began

    return [stage, span, tokens, batch, whole_request, staged]


def main(packages: str, cpu: str, calls: str) -> int:
    sys.path.insert(0, packages)
    import hotstage_marks as marks

    if Path(marks.__file__).parent.parent != Path(packages) or not marks.is_native:
        return 2
    os.sched_setaffinity(0, {int(cpu)})
    measured = kinds()
    print("ready", int(marks.is_watched()), flush=True)
    for _ in sys.stdin:
        taken = []
        for kind in measured:
            kind(1)
            taken.append(kind(int(calls)))
        print(*taken, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
