# SPDX-License-Identifier: Apache-2.0
"""The one table of capabilities: it names the kernel's own numbers, and every feature's needs are in it."""

from __future__ import annotations

import re
from pathlib import Path

from hotstage.host.capabilities import (
    CAPABILITIES,
    FEATURES,
    LEAST,
    OLD_KERNELS,
    USUAL,
    Need,
    features_of,
    held,
    missing_for,
)

HEADER = Path("/usr/include/linux/capability.h")


def test_the_numbers_are_those_of_the_kernels_header():
    numbers = dict(re.findall(r"^#define (CAP_\w+)\s+(\d+)$", HEADER.read_text(), re.MULTILINE))
    assert {c.name: str(c.number) for c in CAPABILITIES} == {c.name: numbers[c.name] for c in CAPABILITIES}


def test_features_take_only_capabilities_of_the_table_and_each_needed_one_serves_a_feature():
    known = {capability.name for capability in CAPABILITIES}
    assert {name for feature in FEATURES for name in feature.needs} <= known
    assert all(features_of(c.name) for c in CAPABILITIES if c.need is not Need.NEVER)
    assert not any(features_of(c.name) for c in CAPABILITIES if c.need is Need.NEVER)


def test_the_grants_grow_from_least_to_old_kernels():
    assert LEAST == ("CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH")
    assert (*LEAST, "CAP_CHECKPOINT_RESTORE") == USUAL
    assert (*USUAL, "CAP_SYS_ADMIN") == OLD_KERNELS


def test_admin_stands_for_the_capabilities_that_were_split_from_it():
    assert held(1 << 21) == {"CAP_SYS_ADMIN", "CAP_BPF", "CAP_PERFMON", "CAP_CHECKPOINT_RESTORE"}
    assert held(1 << 39 | 1 << 2) == {"CAP_BPF", "CAP_DAC_READ_SEARCH"}
    assert held(0) == frozenset()


def test_what_a_feature_still_takes_is_named():
    deleted = next(feature for feature in FEATURES if feature.name == "deleted libraries")
    assert missing_for(deleted, LEAST) == ("CAP_CHECKPOINT_RESTORE",)
    assert missing_for(deleted, USUAL) == ()
