# SPDX-License-Identifier: Apache-2.0
"""The names on the wire are explained, and those of latencies are the seed's."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from hotstage.sinks.otlp import attributes as names
from hotstage.sinks.otlp.notes import REASONS

README = Path(str(files("hotstage.sinks"))) / "README.md"
CONSTANTS = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}


@pytest.mark.parametrize(
    "word",
    [
        *(value for name, value in CONSTANTS.items() if name not in {"SCHEMA_URL", "SERVICE_VERSION"}),
        *REASONS,
    ],
)
def test_every_name_is_explained_beside_the_code(word):
    assert re.search(rf"`(?:[^`\n]*[ =])?{re.escape(word)}(?:[ =][^`\n]*)?`", README.read_text()), word


def test_latency_is_named_by_modality_and_an_images_by_vision_too():
    assert names.latencies("image", 12.5) == {"latency.image.ms": 12.5, "latency.vision.ms": 12.5}
    assert names.latencies("audio", 3.0) == {"latency.audio.ms": 3.0}
