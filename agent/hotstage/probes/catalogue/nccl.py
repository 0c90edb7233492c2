# SPDX-License-Identifier: Apache-2.0
"""libnccl.so.2: collectives, sends and receives, and the communicators they are on. Positions as in nccl.h.

Every `ncclX` is an alias of `pncclX` at one address: one is probed. `Config` twins take the same arguments
and one more at the end. An ncclUniqueId (128 bytes) by value lies on the stack on x86-64; on arm64 its
address takes a register, so what follows stands one further on.
"""

from __future__ import annotations

from hotstage.probes.catalogue.places import (
    RANKS_IN_ORDER,
    by_machine,
)
from hotstage.probes.catalogue.spec import (
    CallSpec,
    Effect,
    Family,
    Group,
    Layer,
    LibrarySpec,
    Making,
    Question,
    Tier,
)
from hotstage.probes.loader.base import PointKind

_IN_PROGRESS = 7
"""ncclInProgress: a communicator that does not block goes on with it."""


def _collective(call_id: int, name: str, communicator: int, stream: int, *, count: int = 3) -> CallSpec:
    """Its type stands behind its count."""
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=PointKind.COMMUNICATOR,
        family=Family.COLLECTIVE,
        variants=() if name in _WITHOUT_TWIN else (f"{name}Config",),
        bytes_argument=count,
        type_argument=count + 1,
        device_argument=communicator,
        stream_argument=stream,
        effect=Effect.COMMUNICATOR_USE,
        no_error=_IN_PROGRESS,
        is_essential=True,
        tier=Tier.T0,
    )


def _new(
    call_id: int,
    name: str,
    *,
    out: int = 1,
    size: int = 0,
    rank: int = 0,
    making: Making = Making.AS_TOLD,
) -> CallSpec:
    """`size`: of a shrunk one how many ranks are left out."""
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=PointKind.COMMUNICATOR,
        family=Family.COMMUNICATOR,
        factor_argument=size,
        device_argument=out,
        rank_argument=rank,
        effect=Effect.COMMUNICATOR_NEW,
        detail=making,
        no_error=_IN_PROGRESS,
        is_essential=True,
        tier=Tier.T0,
    )


def _other(
    call_id: int,
    name: str,
    *,
    effect: Effect = Effect.NONE,
    detail: int = 0,
    communicator: int = 0,
    size: int = 0,
) -> CallSpec:
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=PointKind.COMMUNICATOR if effect else PointKind.OUTER,
        family=Family.COMMUNICATOR,
        bytes_argument=size,
        device_argument=communicator,
        effect=effect,
        detail=detail,
        no_error=_IN_PROGRESS,
        is_essential=bool(effect),
        tier=Tier.T0,
    )


def _asked(call_id: int, name: str, question: Question) -> CallSpec:
    return _other(call_id, name, effect=Effect.COMMUNICATOR_ASKED, detail=question, communicator=1)


_WITHOUT_TWIN = frozenset(("ncclBcast", "ncclSend", "ncclRecv"))

NCCL = LibrarySpec(
    kind="libnccl",
    layer=Layer.LIBRARY,
    calls=(
        # send, receive, count, type, then as each has them: operation, root, communicator, stream
        _collective(288, "ncclAllReduce", 6, 7),
        _collective(289, "ncclAllGather", 5, 6),
        _collective(290, "ncclAlltoAll", 5, 6),
        _collective(291, "ncclReduceScatter", 6, 7),
        _collective(292, "ncclBroadcast", 6, 7),
        _collective(293, "ncclReduce", 7, 8),
        _collective(294, "ncclGather", 6, 7),
        _collective(295, "ncclScatter", 6, 7),
        _collective(296, "ncclBcast", 5, 6, count=2),
        _collective(297, "ncclSend", 5, 6, count=2),
        _collective(298, "ncclRecv", 5, 6, count=2),
        _other(299, "ncclPutSignal"),
        _other(300, "ncclSignal"),
        _other(301, "ncclWaitSignal"),
        _other(302, "ncclGroupStart", effect=Effect.GROUP, detail=Group.BEGINS),
        _other(303, "ncclGroupEnd", effect=Effect.GROUP, detail=Group.ENDS),
        _other(410, "ncclGroupSimulateEnd", effect=Effect.GROUP, detail=Group.DROPPED),
        _new(304, "ncclCommInitRank", size=2, rank=by_machine(x86_64=3, aarch64=4)),
        _new(305, "ncclCommInitRankConfig", size=2, rank=by_machine(x86_64=3, aarch64=4)),
        _new(306, "ncclCommInitRankScalable", size=2, rank=3),
        _new(307, "ncclCommInitAll", size=2, rank=RANKS_IN_ORDER),
        _new(308, "ncclCommSplit", out=4),
        _other(309, "ncclCommDestroy", effect=Effect.COMMUNICATOR_GONE, communicator=1),
        _other(310, "ncclCommAbort", effect=Effect.COMMUNICATOR_GONE, communicator=1),
        _other(311, "ncclCommFinalize"),
        _new(312, "ncclCommShrink", out=4, size=3, making=Making.SHRINK),
        _new(313, "ncclCommGrow", out=5, size=2, rank=4, making=Making.GROWTH),
        _asked(411, "ncclCommCount", Question.SIZE),
        _asked(412, "ncclCommUserRank", Question.RANK),
        _asked(413, "ncclCommCuDevice", Question.DEVICE),
        _other(314, "ncclCommRevoke"),
        _other(315, "ncclCommGetAsyncError"),
        _other(316, "ncclMemAlloc", size=2),
        _other(317, "ncclMemFree"),
        _other(318, "ncclCommRegister"),
        _other(319, "ncclCommDeregister"),
    ),
)
