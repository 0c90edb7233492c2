# SPDX-License-Identifier: Apache-2.0
"""The kernel's slot arithmetic, compiled for this machine, against exact powers; and the exported edges."""

from __future__ import annotations

import ctypes
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hotstage.probes.maps.histograms import slot_upper_seconds
from hotstage.probes.maps.layout import HISTOGRAM_SLOTS

INCLUDE = Path(__file__).parents[4] / "bpf/include"
SHIM = """
#include <linux/types.h>
#define __always_inline inline
#include "abi.h"
#include "histogram.h"
unsigned slot_of(unsigned long long duration_ns) { return histogram_slot_of(duration_ns); }
"""


@pytest.fixture(scope="module")
def slot_of(tmp_path_factory: pytest.TempPathFactory) -> ctypes._CFuncPtr:
    folder = tmp_path_factory.mktemp("histogram")
    (folder / "shim.c").write_text(SHIM, encoding="utf-8")
    library = folder / "shim.so"
    command = ["gcc", "-O2", "-w", "-shared", "-fPIC", f"-I{INCLUDE}", "-o", library, folder / "shim.c"]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(library)).slot_of
    function.argtypes, function.restype = [ctypes.c_uint64], ctypes.c_uint32
    return function


@pytest.mark.parametrize(
    ("duration_ns", "slot"),
    [
        (0, 0),
        (238, 0),  # 2^-22 s is 238.4 ns
        (239, 1),
        (1_000_000, 1 + 8 * 12 + 0),  # 1 ms: between 2^-10 and 2^(-10 + 1/8) s
        (1_000_000_000, 1 + 8 * 22),  # 1 s opens its octave
        (999_999_900, 8 * 22),  # and what is less ends the one before
        (255_999_000_000, HISTOGRAM_SLOTS - 2),
        (256_001_000_000, HISTOGRAM_SLOTS - 1),
        (10**18, HISTOGRAM_SLOTS - 1),
        (2**64 - 1, HISTOGRAM_SLOTS - 1),
    ],
)
def test_known_durations_fall_into_known_slots(slot_of, duration_ns: int, slot: int) -> None:
    assert slot_of(duration_ns) == slot


def test_every_slot_holds_what_its_edges_say(slot_of) -> None:
    rng = np.random.default_rng(11)
    for duration_ns in np.exp(rng.uniform(math.log(239), math.log(255e9), 20_011)).astype(np.int64).tolist():
        octaves = math.log2(duration_ns / 1e9) + 22
        if abs(octaves * 8 - round(octaves * 8)) < 1e-5:
            continue  # on an edge: 2^50 / 10^9 is taken as 1125900
        assert slot_of(duration_ns) == 1 + math.floor(octaves * 8)


def test_edges_are_eighths_of_octaves_and_end_in_infinity() -> None:
    edges = slot_upper_seconds()
    assert len(edges) == HISTOGRAM_SLOTS
    assert edges[0] == 2.0**-22
    assert edges[8] == 2.0**-21
    assert edges[22 * 8] == 1.0
    assert edges[240] == 2.0**8
    assert edges[241] == math.inf
    assert (np.diff(edges[:-1]) > 0).all()
