# SPDX-License-Identifier: Apache-2.0
"""Memory of GPUs as the ledger has it, field by field. Values only. Unknown is null, never 0.

Bytes are what the calls asked for, before the driver rounds them up. What is not allocated by calls
(contexts, code, what graphs run in) is in no figure.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

BasisName = Literal["torch", "pool", "ledger", "inferred", "unknown"]
_LIVE = Meta(
    description="allocated and not freed; null where an allocation found no room in the ledger, or a process "
    "allocated before the probes were there: then it is no less than what its kinds add up to"
)


class MemoryKind(Struct, frozen=True, gc=False):
    """One kind of memory of one process on one device; sums since the process began, or was attached to."""

    kind: Annotated[
        str,
        Meta(
            description="device, pitched, managed, pool (stream-ordered), array, host (page-locked), "
            "physical (cuMemCreate), mapped and reserved (addresses), graph (addresses that nodes of "
            "graphs give out; what memory is behind them only the driver knows), and of no memory of this "
            "process: imported, shared (of another process), external (of another API), multicast"
        ),
    ]
    live_bytes: Annotated[
        int | None, Meta(description="null where the calls did not say the size of some that are live")
    ]
    live_count: int
    unsized_count: Annotated[int, Meta(description="of them, those whose size the calls did not say")]
    high_bytes: Annotated[
        int | None,
        Meta(
            description="the most that was live at once; null: no call says it, nor the bytes below, or it "
            "is more than any GPU has"
        ),
    ]
    allocated_bytes: int | None
    freed_bytes: Annotated[int | None, Meta(description="by calls")]
    implicitly_freed_bytes: Annotated[int | None, Meta(description="with their context")]
    failed_count: Annotated[int, Meta(description="allocations that ran out of memory")]
    untracked_bytes: Annotated[
        int, Meta(description="allocated without room in the ledger; some may be live")
    ]
    refilled_count: Annotated[int, Meta(description="allocations as large as what was freed just before")]
    oldest_age_seconds: float | None
    median_age_seconds: float | None


class MemoryOfStage(Struct, frozen=True, gc=False):
    """Memory for GPUs by the stage that allocated it."""

    stage: str
    modality: str
    live_bytes: int
    high_bytes: Annotated[
        int, Meta(description="the most that was live at once; over several processes the sum of theirs")
    ]
    live_count: int
    allocated_bytes: int
    oldest_age_seconds: float | None
    median_age_seconds: float | None


class AgeSlot(Struct, frozen=True, gc=False):
    """Live allocations for GPUs up to an age, and older than the slot before."""

    up_to_seconds: Annotated[float | None, Meta(description="null: no limit")]
    count: int
    bytes: int


class FragmentationFigure(Struct, frozen=True, gc=False):
    """Which part of the free memory cannot serve one large allocation, and how that is known."""

    basis: BasisName
    ratio: Annotated[
        float | None,
        Meta(
            description="1 - largest free ÷ free; of `pool` slack, 1 - used ÷ reserved; of `inferred` a "
            "lower bound; null where less than 2 % of the device is free"
        ),
    ]
    free_bytes: int | None
    largest_free_bytes: Annotated[int | None, Meta(description="null: this basis does not know it")]
    why: str | None
    false_oom_risk: Annotated[
        bool | None,
        Meta(description="ratio above 0.4: an allocation may fail with enough free; null: not known"),
    ] = None


class MemoryOfProcess(Struct, frozen=True):
    """One process on one device."""

    pid: int
    name: str
    device: Annotated[
        int | None, Meta(description="as the process counts them; null: of no device, or unknown")
    ]
    gpu_uuid: str | None
    is_complete: Annotated[
        bool, Meta(description="every allocation was seen, and had room in the ledger: its sums are exact")
    ]
    live_bytes: Annotated[int | None, _LIVE]
    unmatched_frees: Annotated[int, Meta(description="of what was allocated before the probes were there")]
    kinds: list[MemoryKind]
    stages: list[MemoryOfStage]
    ages: list[AgeSlot]
    fragmentation: FragmentationFigure


class MemoryOfGpu(Struct, frozen=True, gc=False):
    """One GPU; used, free and total by NVML, null where it does not tell."""

    gpu_uuid: str
    total_bytes: int | None
    used_bytes: int | None
    free_bytes: int | None
    live_bytes: Annotated[int | None, _LIVE]
    failed_fitting: Annotated[
        int, Meta(description="allocations of the last minute that failed though as much was free")
    ]
    fragmentation: FragmentationFigure


class Memory(Struct, frozen=True):
    """All that is allocated now; null lists do not occur: what nothing is known of is not there."""

    gpus: list[MemoryOfGpu]
    processes: list[MemoryOfProcess]
    stages: list[MemoryOfStage]
    ended_processes: Annotated[int, Meta(description="that had memory of a GPU when they ended")]
    ended_bytes: Annotated[int, Meta(description="which was freed with them")]
    unobserved: Annotated[
        str | None,
        Meta(description="why nothing that processes have is known now: who switched the probes off"),
    ] = None


def no_memory() -> Memory:
    """What an agent says that watches nothing yet."""
    return Memory([], [], [], 0, 0)
