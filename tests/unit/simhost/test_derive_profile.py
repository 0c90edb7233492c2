# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from hotstage.simhost.derive_profile import QUANTILES, derive
from hotstage.simhost.workload import PROFILE


@pytest.fixture
def traces(tmp_path):
    azure = tmp_path / "azure_llm_2023"
    azure.mkdir()
    rows = [f"2023-11-16 18:15:{second:02d}.0000000,{100 + second},{10}" for second in (0, 1, 3)]
    header = "TIMESTAMP,ContextTokens,GeneratedTokens"
    (azure / "AzureLLMInferenceTrace_conv.csv").write_text("\n".join([header, *rows]))
    folder = tmp_path / "servegen_mm" / "data" / "multimodal" / "mm-image"
    folder.mkdir(parents=True)
    # One client sends 3 requests a window of 10 tokens, the other 1 of 1000; a third one nothing.
    for name, rate, tokens in (("a", 3, 10), ("b", 1, 1000), ("c", 0, 5)):
        histogram = {key: f"{{{tokens}: 1.0}}" for key in ("image_tokens", "text_tokens", "output_tokens")}
        (folder / f"chunk-{name}-dataset.json").write_text(json.dumps({"0": histogram}))
        (folder / f"chunk-{name}-trace.csv").write_text(f"0,{rate},1\n600,{rate},1\n")
    return tmp_path


def test_gaps_are_relative_to_their_mean(traces):
    gaps = derive(traces)["interarrival_ratio"]
    assert len(gaps) == len(QUANTILES)
    assert gaps[0] == pytest.approx(2 / 3 + (2 / 3) * QUANTILES[0], abs=1e-3)
    assert gaps[-1] == pytest.approx(2 / 3 + (2 / 3) * QUANTILES[-1], abs=1e-3)


def test_clients_count_by_what_they_sent(traces):
    tokens = derive(traces)["modalities"]["image"]["media_tokens"]
    assert tokens.count(10) == 30
    assert tokens.count(1000) == 10


def test_what_no_trace_has_is_declared_synthetic():
    profile = json.loads(PROFILE.read_text())
    assert profile["origin"]["audio"] == profile["origin"]["video"] == "synthetic"
    assert set(profile["modalities"]) == {"text", "image", "audio", "video"}
