# SPDX-License-Identifier: Apache-2.0
"""What the agent knows of its own log: only where every record goes to systemd's journal first."""

from __future__ import annotations

import logging

import pytest

from hotstage.cli.journald import JournalHandler
from hotstage.daemon.sources import log_records


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
