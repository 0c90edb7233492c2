# SPDX-License-Identifier: Apache-2.0
"""How a row of libcuda or of the runtime is written: one function for each shape of call.

A call that takes a stream has a twin on the per-thread default stream: `_ptsz`, or `_ptds` where the stream
is understood. `twin=False` says that there is none.
"""

from __future__ import annotations

from hotstage.probes.catalogue.spec import CallSpec, Direction, Effect, Family, Memory, Tier
from hotstage.probes.loader.base import PointKind

_TIMED = PointKind.TIMED


def _twin(name: str) -> str:
    return f"{name}_ptsz" if "Async" in name else f"{name}_ptds"


def launch(
    call_id: int,
    name: str,
    family: Family = Family.LAUNCH,
    *,
    stream: int = 0,
    function: int = 0,
    grid: int = 0,
    kind: PointKind = PointKind.LAUNCH,
    essential: bool = True,
    tier: Tier = Tier.T1,
    until: str = "",
) -> CallSpec:
    """Starts kernels. `function` is where the launched one is named, `grid` where its blocks are."""
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=kind,
        family=family,
        variants=(f"{name}_ptsz",) if stream and essential else (),
        stream_argument=stream,
        function_argument=function,
        grid_argument=grid,
        is_essential=essential,
        tier=tier,
        until=until,
    )


def memory(
    call_id: int,
    name: str,
    family: Family,
    *,
    size: int = 0,
    factor: int = 0,
    stream: int = 0,
    essential: bool = False,
    effect: Effect = Effect.NONE,
    of: Memory = Memory.NONE,
    beside: int = 0,
    offset: int = 0,
    variants: tuple[str, ...] = (),
    tier: Tier = Tier.T0,
    since: str = "",
) -> CallSpec:
    """Takes or gives back memory, addresses or a pool. What is `of` a kind is in the memory ledger; `beside`
    is where its pitch, properties or handle stand, `offset` where its size is of `BYTES_BEHIND`.
    """
    if of and not effect:
        effect = Effect.MEMORY_FREE if family is Family.FREE else Effect.MEMORY_NEW
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=_TIMED,
        family=family,
        variants=variants or ((f"{name}_ptsz",) if stream else ()),
        bytes_argument=size,
        factor_argument=factor,
        stream_argument=stream,
        effect=effect,
        detail=of,
        device_argument=beside,
        bytes_offset=offset,
        is_essential=essential,
        tier=tier,
        since=since,
    )


def copy(
    call_id: int,
    name: str,
    direction: Direction = Direction.UNKNOWN,
    *,
    size: int = 3,
    factor: int = 0,
    stream: int = 0,
    kind: int = 0,
    essential: bool = False,
    twin: bool = True,
    since: str = "",
    until: str = "",
) -> CallSpec:
    """Moves bytes. `size` 0: how many stands where no probe may look; `kind`: where its direction is."""
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=_TIMED,
        family=Family.COPY,
        variants=(_twin(name),) if twin else (),
        bytes_argument=size,
        factor_argument=factor,
        stream_argument=stream,
        direction=direction,
        kind_argument=kind,
        is_essential=essential,
        since=since,
        until=until,
    )


def fill(
    call_id: int, name: str, *, element_bytes: int = 1, size: int = 3, factor: int = 0, stream: int = 0
) -> CallSpec:
    """Sets memory; `size` counts elements, `factor` rows."""
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=_TIMED,
        family=Family.MEMSET,
        variants=(_twin(name),),
        bytes_argument=size,
        factor_argument=factor,
        bytes_per_element=element_bytes,
        stream_argument=stream,
    )


def plain(
    call_id: int,
    name: str,
    family: Family,
    *,
    stream: int = 0,
    variants: tuple[str, ...] = (),
    essential: bool = False,
    tier: Tier = Tier.T0,
    since: str = "",
    until: str = "",
) -> CallSpec:
    """Only counted and timed: waits, graphs, events, modules."""
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=_TIMED,
        family=family,
        variants=variants or ((f"{name}_ptsz",) if stream else ()),
        stream_argument=stream,
        is_essential=essential,
        tier=tier,
        since=since,
        until=until,
    )


def graph(
    call_id: int,
    name: str,
    effect: Effect,
    *,
    stream: int = 0,
    argument: int = 0,
    detail: int = 0,
    twin: bool = True,
    since: str = "",
) -> CallSpec:
    """Begins or ends a capture, makes or destroys a graph. `argument` is where the graph stands that is
    captured into, written or instantiated.
    """
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=_TIMED,
        family=Family.EVENT_WAIT if effect is Effect.CAPTURE_JOIN else Family.GRAPH,
        variants=(f"{name}_ptsz",) if twin else (),
        stream_argument=stream,
        effect=effect,
        device_argument=argument,
        detail=detail,
        tier=Tier.T1 if effect is Effect.CAPTURE_JOIN else Tier.T0,
        since=since,
    )


def handle(call_id: int, name: str, effect: Effect, *, argument: int = 0, since: str = "") -> CallSpec:
    """Makes what launches name later. `argument` is what is kept of it: a function's name or kernel, a
    stream's priority.
    """
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=_TIMED,
        family=Family.HANDLE,
        effect=effect,
        device_argument=argument,
        is_essential=not since,
        tier=Tier.T0,
        since=since,
    )


def context(
    call_id: int,
    name: str,
    effect: Effect = Effect.NONE,
    *,
    device: int = 0,
    detail: int = 0,
    variants: tuple[str, ...] = (),
    since: str = "",
) -> CallSpec:
    """Makes, chooses or ends a context; `device` is where its ordinal stands."""
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=_TIMED,
        family=Family.CONTEXT,
        variants=variants,
        effect=effect,
        detail=detail,
        device_argument=device,
        is_essential=True,
        tier=Tier.T0,
        since=since,
    )
