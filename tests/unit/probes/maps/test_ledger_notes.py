# SPDX-License-Identifier: Apache-2.0
"""Which allocations a note names: the same that the kernel's programs look for."""

from __future__ import annotations

import numpy as np

from hotstage.probes.catalogue.spec import Memory
from hotstage.probes.maps.ledger import ALLOCATION_DTYPE, ALLOCATION_KEY_DTYPE
from hotstage.probes.maps.ledger_notes import NOTE_DTYPE, ended_by, unmapped_by

POINTERS, HANDLES, MAPPINGS, ARRAYS = 0, 1, 2, 4
CONTEXT = 0xC0DE


def allocations(*rows):
    """(pid, address, space, kind, device, context, since_ns) each."""
    keys, values = np.zeros(len(rows), ALLOCATION_KEY_DTYPE), np.zeros(len(rows), ALLOCATION_DTYPE)
    for place, (pid, address, space, kind, device, context, since_ns) in enumerate(rows):
        keys[place] = address, pid, space
        for name, value in (("kind", kind), ("device", device), ("context", context), ("since_ns", since_ns)):
            values[name][place] = value
    return keys, values


def a_note(**values):
    note = np.zeros(1, NOTE_DTYPE)
    for name, value in {"tgid": 7, "until_ns": 100, **values}.items():
        note[name] = value
    return note[0]


def test_an_unmap_takes_mappings_that_begin_in_its_range_and_are_not_newer():
    rows = allocations(
        (7, 100, MAPPINGS, Memory.MAPPED, 0, 0, 5),
        (7, 199, MAPPINGS, Memory.MAPPED, 0, 0, 100),
        (7, 200, MAPPINGS, Memory.MAPPED, 0, 0, 5),
        (7, 99, MAPPINGS, Memory.MAPPED, 0, 0, 5),
        (7, 150, MAPPINGS, Memory.MAPPED, 0, 0, 101),
        (8, 150, MAPPINGS, Memory.MAPPED, 0, 0, 5),
        (7, 150, POINTERS, Memory.DEVICE, 0, 0, 5),
    )
    note = a_note(**{"from": 100, "end": 200})
    assert unmapped_by(note, *rows).tolist() == [True, True, False, False, False, False, False]


def test_a_context_takes_its_pointers_and_arrays_and_a_reset_its_pools_too():
    rows = allocations(
        (7, 1, POINTERS, Memory.DEVICE, 0, CONTEXT, 5),
        (7, 2, ARRAYS, Memory.ARRAY, 0, CONTEXT, 5),
        (7, 3, POINTERS, Memory.POOL, 0, CONTEXT, 5),
        (7, 4, POINTERS, Memory.DEVICE, 0, CONTEXT + 1, 5),
        (7, 5, HANDLES, Memory.PHYSICAL, 0, CONTEXT, 5),
        (7, 6, POINTERS, Memory.POOL, 1, CONTEXT, 5),
        (7, 7, POINTERS, Memory.DEVICE, 0, CONTEXT, 101),
        (8, 1, POINTERS, Memory.DEVICE, 0, CONTEXT, 5),
    )
    destroyed = a_note(**{"from": CONTEXT, "device": 255})
    assert np.flatnonzero(ended_by(destroyed, *rows)).tolist() == [0, 1]
    reset = a_note(**{"from": CONTEXT, "device": 0, "with_pools": 1})
    assert np.flatnonzero(ended_by(reset, *rows)).tolist() == [0, 1, 2]
    unknown = a_note(**{"from": 0, "device": 0, "with_pools": 1})  # the primary context was not seen made
    assert np.flatnonzero(ended_by(unknown, *rows)).tolist() == [0, 1, 2, 3]
