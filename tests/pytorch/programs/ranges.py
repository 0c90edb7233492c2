# SPDX-License-Identifier: Apache-2.0
"""Ranges of torch.cuda.nvtx around launches of the library that is named; one line of JSON a command."""

import ctypes
import json
import sys
import time

import torch
from torch.cuda import nvtx

cuda = ctypes.CDLL(sys.argv[1])
SLICE = 200


def launch(times: int) -> None:
    for _ in range(times):
        cuda.cuLaunchKernel(None)


def serve(steps: int) -> None:
    for step in range(steps):
        launch(3)
        with nvtx.range("vision_encode"):
            launch(11)
            nvtx.range_push(f"no rule knows this {step}")
            launch(2)
            nvtx.range_pop()
        nvtx.range_push(f"Prefill chunk {step}")
        launch(29)
        nvtx.range_pop()
        launch(5)


def time_ranges(slices: int) -> float:
    """ns of one push and pop: the least of so many slices."""
    best = float("inf")
    for _ in range(slices):
        began = time.perf_counter_ns()
        for _ in range(SLICE):
            nvtx.range_push("vision_encode")
            nvtx.range_pop()
        best = min(best, (time.perf_counter_ns() - began) / SLICE)
    return best


print(json.dumps(torch.__version__), flush=True)
for line in sys.stdin:
    verb, *arguments = json.loads(line)
    if verb == "hold":
        nvtx.range_push("vision_encode")
    answer = {"serve": serve, "time": time_ranges, "hold": lambda: None}[verb](*arguments)
    print(json.dumps(answer), flush=True)
