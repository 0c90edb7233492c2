# SPDX-License-Identifier: Apache-2.0
"""What lies between "used" by NVML and "allocated" by the calls that were seen, in one line a GPU.

Allocated is what calls asked for; used is all that is taken of the device. What nobody tells is called
unknown: NVML is not asked which processes hold how much, and no call says what contexts and code take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hotstage.cli.terminal import size
from hotstage.probes.memory_sample import FOR_GPUS

_OF_GPUS = frozenset(kind.name.lower() for kind in FOR_GPUS)

Document = dict[str, Any]


def gap_line(gpu: Document, processes: Sequence[Document], name: str) -> str:
    """`processes`: all of `/v1/memory`; those on this GPU are taken. `name`: what to call the GPU."""
    own = [each for each in processes if each["gpu_uuid"] == gpu["gpu_uuid"]]
    unseen = sum(not each["is_complete"] for each in own)
    known = gpu["live_bytes"]
    if known is None:
        known = sum(_live(each, _OF_GPUS) for each in own)
    if gpu["used_bytes"] is None:
        return f"{name}: used − allocated is unknown: NVML does not say what is used"
    gap = gpu["used_bytes"] - known
    least = "at least " if unseen else ""
    head = f"{name}: used {size(gpu['used_bytes'])} − allocated {least}{size(known)} = "
    if gap < 0:
        return f"{head}−{size(-gap)}: {_more_than_used(own)}"
    most = "at most " if unseen else ""
    nowhere = sum(_live(each, _OF_GPUS) for each in processes if each["gpu_uuid"] is None)
    return f"{head}{most}{size(gap)}, made of {'; '.join(_parts(gpu, own, unseen, nowhere))}{_inside(own)}"


def _parts(gpu: Document, own: Sequence[Document], unseen: int, nowhere: int) -> list[str]:
    """Those that are known first. `nowhere`: bytes of processes of which nobody knows the GPU."""
    slack = sum(each["fragmentation"]["free_bytes"] or 0 for each in own if _has_pool_slack(each))
    figure = gpu["fragmentation"]
    parts = []
    if slack:
        parts.append(f"{size(slack)} that CUDA's pools hold and have not given out")
    if figure["basis"] == "ledger" and figure["free_bytes"] is not None and gpu["free_bytes"] is not None:
        rest = figure["free_bytes"] - gpu["free_bytes"]
        parts += [f"{size(rest)} that is free inside of pages of 2 MiB"] if rest > 0 else []
    if nowhere:
        parts.append(f"up to {size(nowhere)} of processes whose GPU is not known")
    before = f"unknown, of {_count(unseen)}" if unseen else "none, of those that are watched"
    parts.append(f"what was allocated before the probes came: {before}")
    parts.append(f"contexts and code of {_count(len({each['pid'] for each in own}))} here: unknown")
    parts.append("processes that are not watched: unknown")
    return parts


def _inside(own: Sequence[Document]) -> str:
    """An allocator's cache is no part of the gap: its segments are allocated by calls."""
    figures = [each["fragmentation"] for each in own]
    cached = sum(each["free_bytes"] or 0 for each in figures if each["basis"] == "torch")
    return f". Of allocated, {size(cached)} lies unused in PyTorch's cache" if cached else ""


def _more_than_used(own: Sequence[Document]) -> str:
    managed = sum(_live(each, frozenset({"managed"})) for each in own)
    if managed:
        return f"of managed memory ({size(managed)}) a part may lie on the host"
    return "more than is used; the two are not of the same moment"


def _has_pool_slack(process: Document) -> bool:
    """Of CUDA's own pools; slack that PyTorch tells of, with a reason, lies in what calls allocated."""
    figure = process["fragmentation"]
    return figure["basis"] == "pool" and figure["why"] is None


def _live(process: Document, kinds: frozenset[str]) -> int:
    return sum(each["live_bytes"] or 0 for each in process["kinds"] if each["kind"] in kinds)


def _count(processes: int) -> str:
    return f"{processes} process{'' if processes == 1 else 'es'}"
