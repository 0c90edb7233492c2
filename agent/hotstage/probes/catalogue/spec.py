# SPDX-License-Identifier: Apache-2.0
"""The shape of a catalogue row: which call, since when, how it is probed, where its size and stream are. No
symbol here.

Argument positions are 1-based as in the C prototype; 0 means that the call has none. Where the machine keeps
an argument is `bpf/include/arguments.h`'s matter: six registers and then the stack on x86-64, eight on arm64.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.catalogue.places import (
    BYTES_BEHIND,
    GRID_BY_VALUE,
    GRID_IN_LAUNCH_CONFIG,
    LAST_STACK_ARGUMENT,
    SIZES_IN_MEMORY,
    STREAM_IN_LAUNCH_CONFIG,
)
from hotstage.probes.loader.base import PointKind
from hotstage.probes.maps.call_spec import CALL_SPEC_DTYPE
from hotstage.probes.maps.layout import CALLS_MAX


class Family(StrEnum):
    """What kind of work a call is; `launch` and `graph_launch` are the launch-class calls."""

    LAUNCH = "launch"
    GRAPH_LAUNCH = "graph_launch"
    GRAPH = "graph"
    ALLOC = "alloc"
    FREE = "free"
    COPY = "copy"
    MEMSET = "memset"
    SYNC = "sync"
    EVENT_WAIT = "event_wait"
    CONTEXT = "context"
    HANDLE = "handle"
    MARK = "mark"
    HOST_FUNCTION = "host_function"
    POOL = "pool"
    ACCESS = "access"
    EVENT = "event"
    MODULE = "module"
    COLLECTIVE = "collective"
    COMMUNICATOR = "communicator"
    DNN = "dnn"
    DECODE = "decode"
    INFERENCE = "inference"


class Layer(IntEnum):
    """Who answers a call. One piece of work is one call of each layer at most; layers are never added up."""

    DRIVER = 0
    RUNTIME = 1
    LIBRARY = 2


class Tier(IntEnum):
    """How a row is thought of when probes are spared: `[probes] tier` says up to which rows are attached."""

    T0 = 0
    """Seldom and telling: allocations, waits, graphs, contexts."""
    T1 = 1
    """Often, summed in the kernel: launches, copies, fills."""
    T2 = 2
    """Often, and seldom asked for: events, queries, access rights."""


class Direction(StrEnum):
    """Where a copy goes; `unknown` when the call does not say."""

    HOST_TO_HOST = "htoh"
    HOST_TO_DEVICE = "htod"
    DEVICE_TO_HOST = "dtoh"
    DEVICE_TO_DEVICE = "dtod"
    PEER = "peer"
    UNKNOWN = "unknown"


class Effect(IntEnum):
    """What the kernel program does besides counting; as `enum hotstage_effect` in bpf/include/abi.h."""

    NONE = 0
    CONTEXT_NEW = 1
    CONTEXT_CURRENT = 2
    CONTEXT_PUSH = 3
    CONTEXT_POP = 4
    DEVICE_UUID = 5
    FUNCTION_NAMED = 6
    FUNCTION_OF = 7
    STREAM_NEW = 8
    MEMORY_NEW = 9
    MEMORY_FREE = 10
    MEMORY_MAP = 11
    MEMORY_UNMAP = 12
    MEMORY_HOLD = 13
    POOL_ATTRIBUTE = 14
    MEMORY_REGISTER = 15
    CONTEXT_END = 16
    COMMUNICATOR_NEW = 17
    COMMUNICATOR_USE = 18
    COMMUNICATOR_GONE = 19
    CAPTURE_BEGIN = 20
    CAPTURE_JOIN = 21
    CAPTURE_END = 22
    GRAPH = 23
    DEVICE_PROPERTIES = 24
    DEVICE_SET = 25
    COMMUNICATOR_ASKED = 28
    GROUP = 29
    MEMORY_NODE = 30
    POOL_FORGOTTEN = 31


class Memory(IntEnum):
    """What a call allocates or frees; as `enum hotstage_memory` in bpf/include/ledger_abi.h."""

    NONE = 0
    DEVICE = 1
    PITCHED = 2
    MANAGED = 3
    POOL = 4
    HOST = 5
    PHYSICAL = 6
    MAPPED = 7
    RESERVED = 8
    IMPORTED = 9
    ARRAY = 10
    SHARED = 11
    GRAPH = 12
    EXTERNAL = 13
    MULTICAST = 14


class ContextEnd(IntEnum):
    """How a context ends; as `enum hotstage_context_end` in bpf/include/ledger_abi.h."""

    CONTEXT_DESTROYED = 0
    PRIMARY_RESET = 1
    PRIMARY_RELEASED = 2


class Graph(IntEnum):
    """What becomes of a graph; as `enum hotstage_graph` in bpf/include/graphs_abi.h."""

    INSTANTIATED = 0
    DESTROYED = 1


class Making(IntEnum):
    """How a communicator's rank and size are found; as `enum hotstage_communicator_making` in abi.h."""

    AS_TOLD = 0
    SHRINK = 1
    GROWTH = 2


class Question(IntEnum):
    """What a communicator is asked for; as `enum hotstage_question` in bpf/include/abi.h."""

    SIZE = 0
    RANK = 1
    DEVICE = 2


class Group(IntEnum):
    """What becomes of a thread's group of calls; as `enum hotstage_group` in bpf/include/abi.h."""

    BEGINS = 0
    ENDS = 1
    DROPPED = 2


RECAPTURE = 1
"""`detail` of a capture over the nodes of a graph that is there: how many kernels it has then is unknown."""
PRIMARY_CONTEXT = 1
"""`detail` of the call that retains a device's primary context."""


class Step(IntEnum):
    """What a call is between two waits of a thread; as `enum hotstage_step` in bpf/include/abi.h."""

    NONE = 0
    TO_DEVICE = 1
    TO_HOST = 2
    WAIT = 3
    TO_HOST_WAIT = 4


class Answer(IntEnum):
    """How a call says that it failed; as `enum hotstage_answer` in bpf/include/abi.h."""

    CODE = 0
    """By a number that is not 0."""
    POINTER = 1
    """By a pointer to what went wrong: a class of errors, no code."""
    NOTHING = 2
    """It returns nothing, and cannot."""
    AMOUNT = 3
    """By a negative number; others say how much was done."""


class Wait(IntEnum):
    """Into which of its thread's sums a call's time goes; as `enum hotstage_wait` in bpf/include/abi.h."""

    NONE = 0
    SYNC = 1
    COPY = 2
    ALLOC = 3


_WAITS = {Family.SYNC: Wait.SYNC, Family.COPY: Wait.COPY, Family.ALLOC: Wait.ALLOC}


@dataclass(frozen=True, slots=True)
class CallSpec:
    """One call. `name` is the exported symbol people see; `variants` are other exports under the same id."""

    call_id: int
    name: str
    kind: PointKind
    family: Family
    variants: tuple[str, ...] = ()
    bytes_argument: int = 0
    factor_argument: int = 0
    bytes_per_element: int = 1
    stream_argument: int = 0
    effect: Effect = Effect.NONE
    detail: int = 0
    """What the effect is of: a `Memory`, a `ContextEnd`, a `Graph`, a `Making`, a `Question`, a `Group`,
    `RECAPTURE`, `PRIMARY_CONTEXT`.
    """
    device_argument: int = 0
    """What the effect reads beside the first argument; of memory a pitch, properties or a handle."""
    direction: Direction | None = None
    kind_argument: int = 0
    """Where the direction is of a copy that does not say it by its name: a cudaMemcpyKind, or `KIND_…`."""
    function_argument: int = 0
    """Where a launch has its function: 1 or 2, or `layout.FUNCTION_IS_GRAPH`."""
    grid_argument: int = 0
    """Where a launch has its grid: 2 for x, y and z in 2 to 4, or `GRID_…`."""
    operands: tuple[int, ...] = ()
    """Of a USDT probe, `name` being `provider:name`: which arguments its program takes; () = a function."""
    is_essential: bool = False
    """Probed on rung P too, where every probe costs 0.1 s to detach."""
    type_argument: int = 0
    """Where the type stands that `bytes_argument` counts elements of (ncclDataType_t)."""
    bytes_offset: int = 0
    """Of `BYTES_BEHIND`."""
    rank_argument: int = 0
    """Of a new communicator's rank; its size is in `factor_argument`."""
    no_error: int = 0
    """A result beside 0 that is no error."""
    answer: Answer = Answer.CODE
    """Of calls that are probed as `PointKind.OUTER` or `COMMUNICATOR`."""
    slot: int | None = None
    """Where a library's table of functions has it that exports no name of it."""
    is_fallback: bool = False
    """Probed only while some process that has the library has no driver that is counted."""
    tier: Tier = Tier.T1
    since: str = ""
    """The oldest version that is known to have `name`: a driver (`550`), or a release of CUDA (`13.5`); empty
    for what the oldest one looked at has (driver 535, cudart 11.8).
    """
    until: str = ""
    """The last version that is known to have it, empty for what the newest one looked at has."""

    def __post_init__(self) -> None:
        if not 0 < self.call_id < CALLS_MAX:
            raise ValueError(f"{self.name}: call id {self.call_id} is outside 1..{CALLS_MAX - 1}")
        if self.bytes_per_element not in (1, 2, 4, 8):
            raise ValueError(
                f"{self.name}: {self.bytes_per_element} bytes an element is no power of two up to 8"
            )
        last = LAST_STACK_ARGUMENT if 0 < self.kind_argument <= LAST_STACK_ARGUMENT else 6
        for position in (self.bytes_argument, self.factor_argument):
            if not 0 <= position <= last and position not in SIZES_IN_MEMORY:
                raise ValueError(f"{self.name}: no way to read a size from argument {position}")
        if not 0 <= self._handle_argument <= 6:
            raise ValueError(
                f"{self.name}: argument {self._handle_argument} is not in a register (1..6, 0 = none)"
            )
        if (
            self.stream_argument != STREAM_IN_LAUNCH_CONFIG
            and not 0 <= self.stream_argument <= LAST_STACK_ARGUMENT
        ):
            raise ValueError(f"{self.name}: no way to read a stream from argument {self.stream_argument}")
        if bool(self.bytes_offset) != (self.bytes_argument == BYTES_BEHIND):
            raise ValueError(f"{self.name}: an offset goes with a size behind an argument alone")
        if self.function_argument and not self.is_launch_class:
            raise ValueError(f"{self.name}: only launches have a function")
        if self.grid_argument not in (0, 2, GRID_IN_LAUNCH_CONFIG, GRID_BY_VALUE):
            raise ValueError(f"{self.name}: no way to read a grid from argument {self.grid_argument}")
        if (self.direction is not None) != (self.family is Family.COPY):
            raise ValueError(f"{self.name}: copies have a direction, and only they")

    @property
    def _handle_argument(self) -> int:
        """0 for a communicator, which may lie on the stack."""
        return 0 if self.effect is Effect.COMMUNICATOR_USE else self.device_argument

    @property
    def symbols(self) -> tuple[str, ...]:
        """All exports counted under this id."""
        return (self.name, *self.variants)

    @property
    def is_launch_class(self) -> bool:
        """Whether it belongs into `unattributed_ratio`."""
        return self.family in (Family.LAUNCH, Family.GRAPH_LAUNCH)

    @property
    def step(self) -> Step:
        """What it is in a thread's step; copies without a stream wait for themselves."""
        if self.family is Family.SYNC:
            return Step.WAIT
        if self.direction is Direction.HOST_TO_DEVICE:
            return Step.TO_DEVICE
        if self.direction is Direction.DEVICE_TO_HOST:
            return Step.TO_HOST if self.stream_argument else Step.TO_HOST_WAIT
        return Step.NONE


@dataclass(frozen=True, slots=True)
class LibrarySpec:
    """One library and its calls; how its file is called is in `discovery/libraries.py`."""

    kind: str
    layer: Layer
    calls: tuple[CallSpec, ...]
    has_placement_rule: bool = False
    """Whether the first-instruction rule of `placement.py` was proven on this library."""
    ignored: frozenset[str] = frozenset()
    """Exports that look like variants of a row and are something else."""
    absent: str = "not exported"
    """What is said of a row that the library lacks."""

    def __post_init__(self) -> None:
        symbols = [symbol for call in self.calls for symbol in call.symbols]
        ids = [call.call_id for call in self.calls]
        for what, values in (("symbol", symbols), ("call id", [str(call_id) for call_id in ids])):
            twice = sorted({value for value in values if values.count(value) > 1})
            if twice:
                raise ValueError(f"{self.kind}: {what} listed twice: {', '.join(twice)}")

    def by_symbol(self) -> dict[str, CallSpec]:
        """Every export that is probed, and the call it counts as."""
        return {symbol: call for call in self.calls for symbol in call.symbols}


def call_spec_table(libraries: tuple[LibrarySpec, ...]) -> NDArray[np.void]:
    """The `call_specs` map, CALL_SPEC_DTYPE (CALLS_MAX,): row = call id, zeros for ids that no call has."""
    table = np.zeros(CALLS_MAX, dtype=CALL_SPEC_DTYPE)
    for library in libraries:
        for call in library.calls:
            row = table[call.call_id]
            row["bytes_argument"] = call.bytes_argument
            row["factor_argument"] = call.factor_argument
            row["bytes_shift"] = call.bytes_per_element.bit_length() - 1
            row["stream_argument"] = call.stream_argument
            row["effect"] = call.effect
            row["device_argument"] = call.device_argument
            row["wait"] = _WAITS.get(call.family, Wait.NONE)
            row["function_argument"] = call.function_argument
            row["step"] = call.step
            row["grid_argument"] = call.grid_argument
            row["detail"] = call.detail
            row["kind_argument"] = call.kind_argument
            row["type_argument"] = call.type_argument or call.bytes_offset
            row["rank_argument"] = call.rank_argument
            row["no_error"] = call.no_error
            row["answer"] = call.answer
    return table
