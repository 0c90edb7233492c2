# SPDX-License-Identifier: Apache-2.0
"""How much of the programs does the kernel's verifier go through at each load? It was nearly all of the time
that a start takes, and it multiplies where a function is followed once for each way to it (HOTSTAGE_PART).
"""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import pytest

from hotstage.config.settings import ProbesConfig
from hotstage.probes import bpf
from hotstage.probes.loader.base import MapSizes, Rung
from hotstage.probes.loader.libbpf import LibbpfLoader

pytestmark = pytest.mark.kernel

VERIFIED_LIMIT = 125_000
"""Instructions of all programs of a rung together; 92,000 to 96,000 when it was set."""
VERIFIED_INSNS = 216  # offsetof(struct bpf_prog_info, verified_insns), linux/bpf.h


def verified_instructions(fd: int) -> int:
    info = ctypes.create_string_buffer(256)
    bpf.bpf(bpf.OBJECT_INFO, struct.pack("<IIQ", fd, len(info), ctypes.addressof(info)))
    return int(struct.unpack_from("<I", info, VERIFIED_INSNS)[0])


@pytest.mark.parametrize("rung", list(Rung))
def test_what_the_verifier_goes_through_stays_small(objects: Path, rung: Rung) -> None:
    loader = LibbpfLoader(objects)
    try:
        loaded = loader.load(MapSizes.of(ProbesConfig()), rung)
        verified = {name: verified_instructions(fd) for name, fd in loaded.programs.items()}
    finally:
        loader.close()
    print(f"rung {rung}: {sum(verified.values()):,} instructions verified")
    assert all(verified.values()), verified
    assert sum(verified.values()) <= VERIFIED_LIMIT, sorted(verified.items(), key=lambda row: -row[1])[:5]
