# SPDX-License-Identifier: Apache-2.0
"""Which rule wins for which process, thread and stream; what a wrong rule is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotstage.attribution.facts import ProcessFacts
from hotstage.attribution.rules import RuleSet, shipped_rules
from hotstage.config.load import load
from hotstage.config.stages import MATCHED_BY, ModalityWord, StageRule, StagesConfig, StageWord
from hotstage.errors import ConfigError
from hotstage.probes.discovery.processes import ProcessId
from hotstage.probes.maps.inference import Stream
from hotstage.stages.stage import Modality, Stage

SERVER = ProcessFacts(
    ProcessId(7, 1),
    command="/usr/bin/python3 -m serve --port 8000",
    container="4f3a0c9d1b2e",
    cgroup="/system.slice/serve.service",
    libraries=("libcuda.so.1", "libnvinfer.so.10"),
    program="python# serve",
)


def rules(*given: StageRule, shipped: bool = False) -> RuleSet:
    return RuleSet(StagesConfig(rules=list(given), shipped_rules=shipped))


def numbers(found: list) -> list[int]:
    return [rule.number for rule in found]


def test_the_words_are_those_of_the_pipeline() -> None:
    assert list(StageWord.__args__) == [stage.name for stage in Stage]
    assert list(ModalityWord.__args__) == [modality.name for modality in Modality]


def test_a_thread_name_that_no_thread_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="keeps 15 bytes"):
        StageRule(stage="sample", thread="sixteen-bytes-xy")
    StageRule(stage="sample", thread="fifteen-bytes-x")
    StageRule(stage="sample", thread="vit-*-up-to-15-b")


@pytest.mark.parametrize(
    ("glob", "fitting"),
    [
        ("a-very-long-thread-name-*", "a-very-long-thr*"),
        ("vit-*-of-some-longer-name", "vit-*-of-some-lo*"),
        ("sixteen-bytes-[xy][!z]", "sixteen-bytes-[xy]*"),
        ("öffentlicher-dienst*", "öffentlicher-d*"),
    ],
)
def test_a_glob_that_fits_no_name_is_refused_with_one_that_does(glob: str, fitting: str) -> None:
    with pytest.raises(ValueError, match="keeps 15 bytes") as refused:
        StageRule(stage="sample", thread=glob)
    assert f'remedy: write thread = "{fitting}"' in str(refused.value)
    StageRule(stage="sample", thread=fitting)


def test_the_first_rule_that_fits_wins_and_the_others_are_told() -> None:
    found = rules(
        StageRule(stage="sample", thread="other-*"),
        StageRule(stage="vision_encode", modality="image", thread="vit-*"),
        StageRule(stage="llm_decode", command="*-m serve*"),
    )
    assert numbers(found.matching(SERVER, "vit-3")) == [2, 3]
    assert numbers(found.matching(SERVER, "main")) == [3]
    assert numbers(found.matching(SERVER)) == [3], "a thread that is not known fits no rule that names one"


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        ({"container": "4f3a*"}, True),
        ({"container": "0000*"}, False),
        ({"cgroup": "/system.slice/serve*"}, True),
        ({"library": "libnvinfer.so*"}, True),
        ({"library": "libnvinfer"}, False),
        ({"command": "*serve*", "library": "libnccl*"}, False),
        ({"command": "*SERVE*"}, False),
    ],
)
def test_all_keys_of_a_rule_must_fit(rule: dict[str, str], fits: bool) -> None:
    found = rules(StageRule(stage="other", **rule))
    assert bool(found.matching(SERVER, "any")) == fits


def test_streams_are_matched_by_order_priority_and_handle() -> None:
    found = rules(
        StageRule(stage="sample", stream="#1"),
        StageRule(stage="llm_decode", stream="priority:-5"),
        StageRule(stage="kv_transfer", stream="0x7f10"),
        StageRule(stage="other", stream="default"),
    )
    first, second = Stream(7, 0x7F10, 10, 0), Stream(7, 0x7F20, 20, -5)
    assert numbers(found.matching(SERVER, None, first, 0)) == [3]
    assert numbers(found.matching(SERVER, None, second, 1)) == [1, 2]
    assert numbers(found.matching(SERVER, None, 0)) == [4]
    assert found.matching(SERVER) == []
    assert found.uses_streams and not found.uses_threads


def test_own_rules_come_before_the_shipped_ones() -> None:
    decoder = ProcessFacts(ProcessId(9, 1), command="player")
    assert RuleSet(StagesConfig()).matching(decoder, "av:h264:df0")[0].config.stage == "media_decode"
    own = rules(StageRule(stage="video_encode", thread="av:*"), shipped=True)
    assert [(each.is_shipped, each.stage) for each in own.matching(decoder, "av:h264:df0")] == [
        (False, Stage.video_encode),
        (True, Stage.media_decode),
    ]


def test_no_shipped_rule_claims_an_engine_that_does_both() -> None:
    found = RuleSet(StagesConfig())
    for command in ("VLLM::EngineCore", "VLLM::Worker_TP0", "sglang::scheduler_TP0", "python -m vllm serve"):
        assert found.matching(ProcessFacts(ProcessId(1, 1), command=command), "pt_main_thread") == []
    prefill = "python3 -m sglang.launch_server --disaggregation-mode prefill --port 1"
    assert found.matching(ProcessFacts(ProcessId(1, 1), command=prefill))[0].config.stage == "llm_prefill"
    assert all(any(getattr(each, key) for key in MATCHED_BY) for each in shipped_rules())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('stage = "llm_decode"', "at least one of thread, command"),
        ('stage = "llm_decode"\nthread = "**"', "matches everything"),
        ('stage = "llm_decoder"\nthread = "x"', "llm_decoder"),
        ('stage = "llm_decode"\nthred = "x"', "did you mean `thread`?"),
        ('stage = "llm_decode"\nstream = "first"', "`#N`"),
        ('stage = "llm_decode"\nthread = "x"\nconfidence = 2.0', "<= 1"),
    ],
)
def test_a_wrong_rule_is_named_with_its_remedy(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"[[stages.rules]]\n{text}\n")
    with pytest.raises(ConfigError) as refused:
        load(file)
    told = f"{refused.value.message} {refused.value.remedy}"
    assert said in told
    assert str(file) in told
