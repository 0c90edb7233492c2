# SPDX-License-Identifier: Apache-2.0
"""Why a thread counts as what it does, as a document: stage, source, reason, confidence, what else would fit.

Pure. Unknown is null; a confidence is between 0 and 1. Where work has no stage, the reason and the remedies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hotstage.attribution.fingerprints import confidence_of
from hotstage.attribution.rules import Rule
from hotstage.attribution.state import ProcessState, ThreadFacts
from hotstage.attribution.steps import DECODE_CONFIDENCE, ENGINE_BONUS, PREFILL_CONFIDENCE
from hotstage.clock import Clock, rfc3339
from hotstage.probes.launch_sources import LaunchSources
from hotstage.probes.maps.layout import NO_STAGE, Source
from hotstage.stages.stage import Stage, modality_name, stage_name

Document = dict[str, Any]

THREADS_SHOWN = 512
ANCHORS_SHOWN = 8
GAPS_RATIO = 0.02
"""Below this share of launches without a stage no remedy is told."""
_CONFIDENCE = {Source.MARK: 1.0, Source.NVTX: 0.98}


def explain(state: ProcessState, clock: Clock, names: Mapping[tuple[int, int], str]) -> Document:
    """The whole process; threads with the most launches first, THREADS_SHOWN of them."""
    facts, pid = state.facts, state.facts.identity.pid
    threads = sorted(state.threads, key=lambda each: (-each.launches.total, each.tid))
    return {
        "pid": pid,
        "command": facts.command,
        "program": facts.program or None,
        "container": facts.container,
        "judged_at_ns": clock.wall_ns_of(state.at_ns),
        "marked": state.is_marked,
        "launches": _launches(state.launches),
        "fingerprint": _fingerprint(state),
        "threads_total": len(threads),
        "threads": [_thread(state, each, clock, names) for each in threads[:THREADS_SHOWN]],
        "unattributed": _unattributed(state, state.launches, None),
    }


def _thread(
    state: ProcessState, thread: ThreadFacts, clock: Clock, names: Mapping[tuple[int, int], str]
) -> Document:
    has_stage = thread.stage != NO_STAGE
    since_ns = None if thread.since_ns is None else clock.wall_ns_of(thread.since_ns)
    return {
        "tid": thread.tid,
        "name": thread.name or None,
        "stage": _name(state, thread.stage, names) if has_stage else None,
        "modality": modality_name(thread.modality) if has_stage else None,
        "source": thread.source.name.lower(),
        "why": _why(state, thread),
        "confidence": _confidence(state, thread),
        "since": None if since_ns is None else rfc3339(since_ns),
        "since_ns": since_ns,
        "rule": _rule(thread.rules[0]) if thread.source is Source.RULE and thread.rules else None,
        "alternatives": _alternatives(state, thread),
        "launches": _launches(thread.launches),
        "unattributed": _unattributed(state, thread.launches, thread),
    }


def _name(state: ProcessState, stage: int, names: Mapping[tuple[int, int], str]) -> str:
    return names.get((state.facts.identity.pid, stage)) or stage_name(stage)


def _why(state: ProcessState, thread: ThreadFacts) -> str:
    match thread.source:
        case Source.MARK:
            return "a mark of the program"
        case Source.NVTX:
            return "an NVTX range of the program, by the rules of hotstage_marks/nvtx_rules.txt"
        case Source.RULE:
            by_stream = f", or one of {thread.stream_rules} for its stream" if thread.stream_rules else ""
            return (thread.rules[0].text if thread.rules else "a rule that has changed since") + by_stream
        case Source.FINGERPRINT if state.by_function:
            return f"functions that only this stage launches: {_anchors(state, thread.stage)}"
        case Source.FINGERPRINT:
            return f"the shape of its steps: {thread.shape.why}"
    if not thread.launches.total:
        return "it has launched nothing yet"
    return "nothing says what it is doing" if thread.launches.none else "no mark now; its launches had one"


def _anchors(state: ProcessState, stage: int) -> str:
    own = [each for each in state.anchors if each.decision.stage == stage][:3]
    return ", ".join(f"{each.name} ({each.share:.0%} of {each.launches})" for each in own) or "none any more"


def _confidence(state: ProcessState, thread: ThreadFacts) -> float | None:
    if thread.source in _CONFIDENCE:
        return _CONFIDENCE[thread.source]
    if thread.source is Source.RULE:
        return thread.rules[0].config.confidence if thread.rules else None
    if thread.source is Source.FINGERPRINT:
        known = confidence_of(state.anchors, thread.stage) if state.by_function else _by_shape(thread.stage)
        if known is None:
            return None
        return round(min(0.95, known + ENGINE_BONUS) if _is_helped(state, thread) else known, 3)
    return None


def _by_shape(stage: int) -> float:
    return DECODE_CONFIDENCE if stage == Stage.llm_decode else PREFILL_CONFIDENCE


def _is_helped(state: ProcessState, thread: ThreadFacts) -> bool:
    return state.engine_agrees and thread.stage in (Stage.llm_decode, Stage.llm_prefill)


def _alternatives(state: ProcessState, thread: ThreadFacts) -> list[Document]:
    """What would count if what counts now were not there, the next one first."""
    rules = thread.rules[1:] if thread.source is Source.RULE else thread.rules
    found: list[Document] = [{"source": "rule", **_rule(each)} for each in rules]
    if thread.source is not Source.FINGERPRINT:
        found += [
            {"source": "fingerprint", "stage": stage_name(stage), "text": _anchors(state, stage)}
            for stage in dict.fromkeys(each.decision.stage for each in state.anchors)
        ]
        if thread.shape.is_language_model:
            found.append({"source": "fingerprint", "stage": "llm_decode", "text": thread.shape.why})
    return found


def _rule(rule: Rule) -> Document:
    return {
        "number": rule.number,
        "shipped": rule.is_shipped,
        "text": rule.text,
        "stage": rule.config.stage,
        "modality": rule.config.modality,
        "confidence": rule.config.confidence,
    }


def _fingerprint(state: ProcessState) -> Document:
    return {
        "applied": state.by_function,
        "functions_known": state.functions_known,
        "learned_from_launches": state.program_launches,
        "anchors": [
            {
                "function": each.name,
                "stage": stage_name(each.decision.stage),
                "share": round(each.share, 4),
                "launches": each.launches,
                "confidence": round(each.confidence, 3),
            }
            for each in state.anchors[:ANCHORS_SHOWN]
        ],
    }


def _launches(launches: LaunchSources) -> Document:
    return {**asdict(launches), "total": launches.total}


def _unattributed(state: ProcessState, launches: LaunchSources, thread: ThreadFacts | None) -> Document:
    """How much of the launches has no stage; reason and remedies where it is more than a trifle."""
    ratio = launches.none / launches.total if launches.total else None
    is_trifle = ratio is None or ratio < GAPS_RATIO
    return {
        "launches": launches.none,
        "ratio": ratio,
        "reason": None if is_trifle else _reason(state, launches),
        "remedies": [] if is_trifle else _remedies(state, launches, thread),
    }


def _reason(state: ProcessState, launches: LaunchSources) -> str:
    if launches.marked:
        return "launches outside the program's marks and ranges, and no rule that fits"
    if launches.fingerprint:
        return "launches before a function that tells a stage, or of functions that its stages never launch"
    if launches.rule:
        return "launches from before the rule was in force"
    if state.by_function:
        return "its functions were learned, but it has launched none that tells a stage"
    if state.program_launches and not state.functions_known:
        return "its program was learned, but it looked its functions up before the probes were attached"
    if state.program_launches:
        return "its program was learned, but no function of it tells a stage"
    return "no mark, no NVTX range, no rule that fits, and its program was never learned under marks"


def _remedies(state: ProcessState, launches: LaunchSources, thread: ThreadFacts | None) -> list[str]:
    if launches.marked:
        return ["mark what runs outside its stages: `with marks.stage(…)`", _rule_remedy(state, thread)]
    found = [
        "mark its stages: `with marks.stage(…)` of hotstage-marks, or its vLLM plug-in",
        "where it has NVTX ranges: start it with NVTX_INJECTION64_PATH set to libhotstage_nvtx.so "
        "(`python -m hotstage_marks.nvtx --print` prints it)",
        _rule_remedy(state, thread),
    ]
    if state.program_launches and not state.functions_known:
        found.insert(0, "start it again while the agent runs: then its functions are known by name")
    elif not state.program_launches:
        found.append("run it once with marks: its functions are learned, and known without marks later")
    return found


def _rule_remedy(state: ProcessState, thread: ThreadFacts | None) -> str:
    if thread is not None and thread.name:
        by = f"thread = {_toml(_literal(thread.name))}"
    else:
        told = state.facts.program.rpartition(" ")[2]  # its digits were left out
        by = f"command = {_toml('*' + '*'.join(map(_literal, told.split('#'))) + '*')}"
    return f'add a rule: [[stages.rules]] {by}, stage = "…"'


def _literal(name: str) -> str:
    """A glob that fits this name only: strangers choose it."""
    return re.sub(r"[*?[]", r"[\g<0>]", name)


def _toml(text: str) -> str:
    """A string in TOML; JSON's escapes are among TOML's."""
    return json.dumps(text, ensure_ascii=False)
