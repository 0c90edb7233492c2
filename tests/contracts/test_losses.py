# SPDX-License-Identifier: Apache-2.0
"""Every loss has its sentences, in the code and in the document, and settings that they name exist."""

from __future__ import annotations

import re
from pathlib import Path

from hotstage.config.settings import ProbesConfig
from hotstage.probes.losses import MEANINGS
from hotstage.probes.maps.layout import Loss
from hotstage.stages.shares import UNCLAIMED

README = Path(__file__).resolve().parents[2] / "bpf/README.md"


def test_every_loss_has_a_meaning_and_nothing_else_has() -> None:
    assert list(MEANINGS) == [*(loss.name.lower() for loss in Loss), UNCLAIMED]


def test_no_sentence_is_missing() -> None:
    for name, told in MEANINGS.items():
        for sentence in (told.means, told.falsifies, told.helps):
            assert len(sentence) > 10, name
            assert not sentence.endswith("."), name


def test_the_document_says_the_same() -> None:
    rows = re.findall(
        r"^\| `((?:lost|missed|re|un|stale)[a-z_]+)` \| (.+) \| (.+) \| (.+) \|$", _section(), re.MULTILINE
    )
    assert rows == [(name, told.means, told.falsifies, told.helps) for name, told in MEANINGS.items()]


def test_remedies_name_settings_that_exist() -> None:
    named = set(re.findall(r"probes\.([a-z_]+)", " ".join(told.helps for told in MEANINGS.values())))
    assert named
    assert named <= set(ProbesConfig.__struct_fields__)


def _section() -> str:
    return README.read_text(encoding="utf-8").partition("\n## Losses\n")[2].partition("\n## ")[0]
