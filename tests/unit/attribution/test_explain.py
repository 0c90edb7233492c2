# SPDX-License-Identifier: Apache-2.0
"""What is said of a thread: why, how sure, what else would fit, what would help; as the API promises it."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib.resources import files

import jsonschema
import pytest
from support.attribution import FACTS, NO_SHAPE, anchor, process, thread

from hotstage.attribution.explain import THREADS_SHOWN, explain
from hotstage.attribution.state import ProcessState
from hotstage.clock import SystemClock
from hotstage.probes.launch_sources import LaunchSources
from hotstage.probes.maps.layout import Source
from hotstage.stages.stage import Stage

OPENAPI = json.loads(files("hotstage.api").joinpath("openapi.json").read_text())
SCHEMA = {"$ref": "#/components/schemas/StagesExplained", "components": OPENAPI["components"]}
COMMON = {"at": "2026-01-01T00:00:00Z", "at_ns": 1, "host": "h", "stale": False, "tick": 1}


def said(state: ProcessState, names: dict[tuple[int, int], str] | None = None) -> dict:
    document = explain(state, SystemClock(), names or {})
    jsonschema.validate({**COMMON, **document}, SCHEMA)
    return document


def test_a_mark_is_certain_and_tells_since_when() -> None:
    (found,) = said(process(thread(1, "main", Source.MARK, Stage.sample), is_marked=True))["threads"]
    assert (found["stage"], found["source"], found["confidence"]) == ("sample", "mark", 1.0)
    assert found["since"].endswith("Z")


def test_a_thread_between_its_marks_is_not_called_unknown() -> None:
    between = thread(1, "main", Source.NONE, launches=LaunchSources(mark=50))
    silent = thread(2, "main", Source.NONE, launches=LaunchSources(none=50))
    idle = thread(3, "main", Source.NONE, launches=LaunchSources())
    found = {each["tid"]: each["why"] for each in said(process(between, silent, idle))["threads"]}
    assert found == {
        1: "no mark now; its launches had one",
        2: "nothing says what it is doing",
        3: "it has launched nothing yet",
    }


def test_an_own_stage_is_told_by_its_name() -> None:
    state = process(thread(1, "main", Source.MARK, 37))
    assert said(state)["threads"][0]["stage"] == "stage_37"
    assert said(state, {(77, 37): "rerank"})["threads"][0]["stage"] == "rerank"


def test_a_rule_is_told_with_its_number_and_the_ones_behind_it() -> None:
    state = process(thread(1, "vit-0", Source.RULE, Stage.vision_encode, launches=LaunchSources(rule=9)))
    (found,) = said(state)["threads"]
    assert found["why"] == 'rule 1: thread = "vit*"'
    assert found["rule"]["number"] == 1
    assert [each["text"] for each in found["alternatives"]] == ['rule 2: command = "*server.py"']


def test_a_mark_hides_the_rule_that_would_else_count() -> None:
    (found,) = said(process(thread(1, "vit-0", Source.MARK, Stage.sample)))["threads"]
    assert [each["stage"] for each in found["alternatives"]] == ["vision_encode", "other"]
    assert found["rule"] is None


def test_learned_functions_are_named_with_their_shares() -> None:
    anchors = (anchor("decode_attention", Stage.llm_decode, 5000), anchor("vit", Stage.vision_encode, 60))
    state = process(
        thread(1, "worker", Source.FINGERPRINT, Stage.llm_decode, launches=LaunchSources(fingerprint=50)),
        by_function=True,
        anchors=anchors,
    )
    found = said(state)
    assert "decode_attention (100% of 5000)" in found["threads"][0]["why"]
    assert found["threads"][0]["confidence"] == pytest.approx(0.999, abs=1e-3)
    assert [each["stage"] for each in found["fingerprint"]["anchors"]] == ["llm_decode", "vision_encode"]


def test_an_engine_that_decodes_raises_confidence_and_decides_nothing() -> None:
    shape = replace(NO_SHAPE, steps=50, graph=50, seconds=5.0)
    decoding = thread(1, "w", Source.FINGERPRINT, Stage.llm_decode, shape=shape, by_step=True)
    alone, helped = process(decoding), process(decoding, engine_agrees=True)
    assert [said(each)["threads"][0]["confidence"] for each in (alone, helped)] == [0.6, 0.75]
    unknown = process(thread(1, "w", Source.NONE), engine_agrees=True)
    assert said(unknown)["threads"][0]["stage"] is None


@pytest.mark.parametrize(
    ("launches", "changed", "reason", "remedy"),
    [
        (LaunchSources(none=40), {}, "never learned", "NVTX_INJECTION64_PATH"),
        (
            LaunchSources(mark=90, none=10),
            {"is_marked": True},
            "outside the program's marks",
            "mark what runs",
        ),
        (LaunchSources(none=9), {"program_launches": 800}, "before the probes", "start it again"),
        (
            LaunchSources(fingerprint=90, none=10),
            {"by_function": True, "anchors": (anchor("f", Stage.sample, 99),)},
            "launches before a function",
            "add a rule",
        ),
    ],
)
def test_unattributed_work_has_a_reason_and_a_remedy(
    launches: LaunchSources, changed: dict[str, object], reason: str, remedy: str
) -> None:
    found = said(process(thread(1, "w", Source.NONE, launches=launches), **changed))["unattributed"]
    assert reason in found["reason"]
    assert any(remedy in each for each in found["remedies"])


def test_a_trifle_and_no_launch_at_all_need_no_remedy() -> None:
    trifle = process(thread(1, "w", Source.NONE, launches=LaunchSources(mark=999, none=1)))
    nothing = process(thread(1, "w", Source.NONE, launches=LaunchSources()))
    assert [said(each)["unattributed"]["remedies"] for each in (trifle, nothing)] == [[], []]
    assert said(nothing)["unattributed"]["ratio"] is None


def test_a_crowd_of_threads_is_cut_and_counted() -> None:
    crowd = process(*(thread(tid, "w", Source.NONE) for tid in range(1, THREADS_SHOWN + 40)))
    found = said(crowd)
    assert (len(found["threads"]), found["threads_total"]) == (THREADS_SHOWN, THREADS_SHOWN + 39)
    assert found["threads"][0]["tid"] == THREADS_SHOWN + 39, "those that launch most come first"


def test_a_rule_for_a_strangers_name_fits_that_name_alone() -> None:
    """The remedy is copied by people: a thread named `*` must not make a rule for everything."""
    for name in ("*", 'a"\nstage="x', "[!a]?", "v\\it"):
        odd = thread(9, name, Source.NONE, launches=LaunchSources(none=90))
        remedies = said(process(odd))["threads"][0]["unattributed"]["remedies"]
        (told,) = [each for each in remedies if each.startswith("add a rule")]
        by = told.removeprefix("add a rule: [[stages.rules]] ").removesuffix(', stage = "…"')
        glob = tomllib.loads(by)["thread"]
        assert fnmatchcase(name, glob)
        assert not fnmatchcase("a", glob)


def test_a_rule_for_a_program_fits_it_though_its_digits_were_left_out() -> None:
    state = replace(
        process(thread(9, "", Source.NONE, launches=LaunchSources(none=90))),
        facts=replace(FACTS, command="python serve2.py", program="python# serve#.py"),
    )
    told = said(state)["unattributed"]["remedies"][-2]
    glob = tomllib.loads(told.removeprefix("add a rule: [[stages.rules]] ").removesuffix(', stage = "…"'))
    assert fnmatchcase("python serve2.py", glob["command"])


def a_part_ruled() -> ProcessState:
    """20 launches from before the rule for vit-0; of llm-0 and llm-1 nothing says anything."""
    return process(
        thread(1, "vit-0", Source.RULE, Stage.vision_encode, launches=LaunchSources(rule=2725, none=120)),
        thread(2, "llm-0", Source.NONE, launches=LaunchSources(none=2000)),
        thread(3, "llm-1", Source.NONE, launches=LaunchSources(none=655)),
    )


def test_each_cause_is_told_with_its_threads_and_its_count() -> None:
    found = said(a_part_ruled())["unattributed"]
    assert found["reason"].split("; ") == [
        "2655 of threads llm-0, llm-1: no mark, no NVTX range, no rule that fits, and its program was never "
        "learned under marks",
        "120 of thread vit-0: from before the rule was in force",
    ]
    assert [(each["launches"], each["threads"]) for each in found["parts"]] == [(2655, [2, 3]), (120, [1])]


def test_a_rule_is_suggested_for_the_threads_that_lack_one_only() -> None:
    remedies = said(a_part_ruled())["unattributed"]["remedies"]
    assert [each for each in remedies if "rule" in each] == [
        'add a rule: [[stages.rules]] thread = "llm-*", stage = "…"'
    ]


def test_what_a_rule_covers_by_now_needs_no_remedy() -> None:
    ruled = thread(1, "vit-0", Source.RULE, Stage.vision_encode, launches=LaunchSources(rule=50, none=50))
    found = said(process(ruled))["unattributed"]
    assert found["reason"] == "50 of thread vit-0: from before the rule was in force"
    assert found["remedies"] == []


def test_launches_of_threads_that_have_ended_are_told_apart() -> None:
    living = thread(1, "llm-0", Source.NONE, launches=LaunchSources(none=10))
    state = replace(process(living), launches=LaunchSources(none=40))
    assert said(state)["unattributed"]["reason"].startswith(
        "30 of threads that have ended; 10 of thread llm-0"
    )


def test_a_thread_that_the_marks_leave_out_is_not_called_outside_them() -> None:
    marked = thread(1, "vit-0", Source.MARK, Stage.sample, launches=LaunchSources(mark=90), rules=())
    left_out = thread(2, "copier", Source.NONE, launches=LaunchSources(none=60))
    found = said(process(marked, left_out, is_marked=True))["unattributed"]
    assert found["reason"].startswith("60 of thread copier: the program's marks and ranges leave this")
    assert found["remedies"][1] == 'add a rule: [[stages.rules]] thread = "copier", stage = "…"'


def test_a_process_that_has_ended_says_so() -> None:
    assert said(process())["ended_at"] is None
    clock = SystemClock()
    document = explain(process(), clock, {}, 9_000_000_000)
    jsonschema.validate({**COMMON, **document}, SCHEMA)
    assert document["ended_at"].endswith("Z")
    assert abs(document["ended_at_ns"] - clock.wall_ns_of(9_000_000_000)) < 1_000_000_000
