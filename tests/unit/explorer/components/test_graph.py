# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import hotstage_explorer
from hotstage_explorer.components.graph import graph


def test_a_drawing_never_offers_to_send_its_data_away() -> None:
    config = graph("g", {"data": []}).config
    assert config["showSendToCloud"] is False
    assert config["displaylogo"] is False


def test_every_drawing_comes_from_this_factory() -> None:
    home = Path(hotstage_explorer.__file__).parent
    makers = [p.name for p in home.rglob("*.py") if "dcc.Graph(" in p.read_text()]
    assert makers == ["graph.py"]
