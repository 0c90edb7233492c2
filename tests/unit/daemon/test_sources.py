# SPDX-License-Identifier: Apache-2.0
"""What the agent tells on demand: its own log, only where every record goes to systemd's journal first; no
more frames than are good for it.
"""

from __future__ import annotations

import logging

import numpy as np
import pytest

from hotstage.api.message import ApiError
from hotstage.cli.journald import JournalHandler
from hotstage.daemon import sources
from hotstage.daemon.sources import log_records
from hotstage.frame.columns import COLUMNS
from hotstage.frame.entity import HOST
from hotstage.frame.frame import Frame


@pytest.fixture
def root():
    root = logging.getLogger()
    before = root.handlers[:]
    yield root
    root.handlers[:] = before


def test_records_that_the_journal_did_not_take_are_told_by_their_fate(root, tmp_path):
    handler = JournalHandler("agent", lambda record: {}, logging.NullHandler(), tmp_path / "no-socket")
    root.handlers[:] = [handler]
    root.error("nobody listens")
    root.error("nor now")
    assert log_records() == {"refused": 2, "dropped": 0}
    handler.close()


def test_without_a_journal_nothing_is_known(root):
    root.handlers[:] = [logging.NullHandler()]
    assert log_records() == {}
    root.handlers[:] = []
    assert log_records() == {}


def test_more_frames_than_one_answer_may_have_are_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr(sources, "FRAME_VALUES_MAX", 3 * len(COLUMNS))
    frames = [Frame(second, (HOST,), np.zeros((1, len(COLUMNS)))) for second in range(4)]
    sources.refuse_too_much(frames[:3], ())
    sources.refuse_too_much(frames, ("load_ratio",))
    with pytest.raises(ApiError, match=f"{4 * len(COLUMNS)} values") as refused:
        sources.refuse_too_much(frames, ())
    assert (refused.value.status, refused.value.code) == (400, "too_much")
    assert "name the columns" in refused.value.remedy
