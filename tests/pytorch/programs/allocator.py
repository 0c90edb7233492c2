# SPDX-License-Identifier: Apache-2.0
"""Random work of PyTorch's CUDA allocator, told by JSON lines; answers with the allocator's own snapshot."""

import json
import random
import sys
import time

import torch

MIB = 1 << 20
held: dict[int, list[torch.Tensor]] = {}
chance = random.Random(int(sys.argv[1]))


def some_bytes() -> int:
    """Of every class that the allocator tells apart: up to 1 MiB, up to 10 MiB, above."""
    kind = chance.random()
    if kind < 0.5:
        return chance.randrange(1, MIB)
    if kind < 0.85:
        return chance.randrange(MIB, 10 * MIB)
    return chance.randrange(10 * MIB, 200 * MIB)


def work(operations: int, device: int) -> dict:
    mine = held.setdefault(device, [])
    for _ in range(operations):
        if mine and chance.random() < 0.48:
            mine.pop(chance.randrange(len(mine)))
        else:
            mine.append(torch.empty(some_bytes(), dtype=torch.uint8, device=f"cuda:{device}"))
        if chance.random() < 0.01:
            torch.cuda.empty_cache()
    return snapshot(device)


def snapshot(device: int) -> dict:
    segments = [each for each in torch.cuda.memory_snapshot() if each["device"] == device]
    blocks = [
        (block["address"], block["size"], block["requested_size"], block["state"])
        for segment in segments
        for block in segment["blocks"]
    ]
    return {
        "segments": sorted((each["address"], each["total_size"]) for each in segments),
        "allocated": sorted(block[:3] for block in blocks if block[3] == "active_allocated"),
        "free": sorted(block[:2] for block in blocks if block[3] == "inactive"),
        "stats": torch.cuda.memory_stats(device),
    }


def fail(device: int) -> str:
    try:
        torch.empty(100 << 30, dtype=torch.uint8, device=f"cuda:{device}")
    except torch.OutOfMemoryError as error:
        return str(error)
    return ""


def forget(device: int) -> dict:
    held.pop(device, None)
    torch.cuda.empty_cache()
    return snapshot(device)


def add(times: int) -> int:
    """So many launches of real kernels."""
    one = torch.empty(1024, device="cuda")
    for _ in range(times):
        one.add_(1)
    torch.cuda.synchronize()
    return times


def time_pairs(slices: int) -> float:
    """ns of one block that is made and freed: the least of so many slices."""
    best = float("inf")
    for _ in range(slices):
        began = time.perf_counter_ns()
        for _ in range(200):
            torch.empty(4096, dtype=torch.uint8, device="cuda")
        best = min(best, (time.perf_counter_ns() - began) / 200)
    return best


VERBS = {"work": work, "snapshot": snapshot, "fail": fail, "forget": forget, "add": add, "time": time_pairs}
torch.cuda.init()
print(json.dumps(torch.__version__), flush=True)
for line in sys.stdin:
    verb, *arguments = json.loads(line)
    print(json.dumps(VERBS[verb](*arguments)), flush=True)
