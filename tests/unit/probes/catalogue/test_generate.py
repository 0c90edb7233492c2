# SPDX-License-Identifier: Apache-2.0
"""The headers in bpf/ repeat what Python decides."""

from __future__ import annotations

import re

from hotstage.probes.catalogue import LIBRARIES, calls_by_id
from hotstage.probes.catalogue.generate import main, probe_ids, stage_ids
from hotstage.probes.maps.layout import MODALITIES, STAGE_SLOTS
from hotstage.stages.stage import Modality, Stage


def test_the_committed_headers_are_the_generated_ones() -> None:
    assert main(["--check"]) == 0


def test_every_stage_and_modality_is_in_c() -> None:
    found = dict(re.findall(r"#define (HOTSTAGE_\w+) (\d+)", stage_ids()))
    assert found["HOTSTAGE_STAGE_VISION_ENCODE"] == "8"
    assert found["HOTSTAGE_MODALITY_IMAGE"] == "1"
    assert len(found) == len(Stage) + len(Modality)


def test_the_kernels_slots_hold_every_stage_and_modality() -> None:
    assert max(Stage) < STAGE_SLOTS
    assert len(Modality) == MODALITIES


def test_every_call_is_in_c_once() -> None:
    found = re.findall(r"CALL_(\w+) = (\d+),", probe_ids())
    assert {int(number): name for name, number in found} == {
        call_id: call.name.replace(":", "_") for call_id, call in calls_by_id().items()
    }
    assert len(found) == sum(len(library.calls) for library in LIBRARIES)
