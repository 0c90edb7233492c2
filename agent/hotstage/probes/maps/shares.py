# SPDX-License-Identifier: Apache-2.0
"""Of which maps a process may hold a share; the ids are those of bpf/include/abi.h."""

from __future__ import annotations

from enum import IntEnum


class Share(IntEnum):
    """Maps of which a process may hold a share, `enum hotstage_share`."""

    CALL_STATS = 0
    FUNCTIONS = 1
    FUNCTION_COUNTS = 2
    STREAMS = 3
    ALLOCATIONS = 4
    BLOCKS = 5
    STREAM_USERS = 6
    COMMUNICATORS = 7
    GRAPHS = 8
    CONTEXTS = 9
    DEVICES = 10
    PRIMARIES = 11
    POOLS = 12
    PENDING = 13
