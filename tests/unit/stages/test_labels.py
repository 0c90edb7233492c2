# SPDX-License-Identifier: Apache-2.0
"""Stages that servers make up, on one host: the same name is one label, and a table that is full says so."""

from __future__ import annotations

import numpy as np
from support.pulses import span

from hotstage.stages.labels import Labeller, StageLabels
from hotstage.stages.spans import SPAN_DTYPE
from hotstage.stages.stage import NO_STAGE, Modality, Stage

SECOND = 1_000_000_000


def spans(*keys):
    rows = np.array([span(stage, Modality.text, 0, 1, pid=pid) for pid, stage in keys], SPAN_DTYPE)
    rows["label"] = 0
    return rows


class Names:
    """What processes tell, and how often they were asked."""

    def __init__(self, names):
        self.names, self.asked = names, 0

    def __call__(self):
        self.asked += 1
        return self.names


def test_pinned_stages_are_their_own_labels():
    labels = StageLabels()
    assert [labels[labels.label_of(1, stage)] for stage in Stage] == [stage.name for stage in Stage]
    assert labels[labels.label_of(1, NO_STAGE)] == "none"


def test_one_name_in_two_processes_is_one_label_whatever_its_ids():
    labels = StageLabels()
    labels.know({(1, 40): "rerank", (2, 33): "rerank", (2, 40): "guard", (3, 32): "llm_decode"})
    assert labels.label_of(1, 40) == labels.label_of(2, 33) != labels.label_of(2, 40)
    assert [labels[labels.label_of(*key)] for key in ((1, 40), (2, 40))] == ["rerank", "guard"]
    assert labels.label_of(3, 32) == Stage.llm_decode
    assert labels.label_of(1, 41) == Stage.other
    labels.know({(1, 40): "guard"})  # another process has come by that pid; labels stay what they are
    assert labels[labels.label_of(1, 40)] == "guard"


def test_names_beyond_the_limit_are_other_and_counted():
    labels = StageLabels(limit=3)
    labels.know({(1, 32 + n): f"made-up-{n}" for n in range(8)})
    assert len(labels) == 256 + 3
    assert labels.refused == 5
    assert labels.label_of(1, 39) == Stage.other


def test_a_new_stage_is_asked_for_at_once_and_a_nameless_one_once_a_second():
    labels, names = StageLabels(), Names({})
    labeller = Labeller(labels, names)
    labeller.label(spans((1, Stage.queue)), SECOND)
    assert names.asked == 0
    rows = spans((1, 40), (1, Stage.queue))
    labeller.label(rows, SECOND)
    assert rows["label"].tolist() == [Stage.other, Stage.queue]
    for tenth in range(1, 10):
        labeller.label(spans((1, 40)), SECOND + tenth * SECOND // 10)
    assert names.asked == 1
    names.names = {(1, 40): "rerank"}
    rows = spans((1, 40))
    labeller.label(rows, 2 * SECOND)
    assert labels[int(rows["label"][0])] == "rerank"
    labeller.label(spans((1, 41)), 2 * SECOND + 1)
    assert names.asked == 3
