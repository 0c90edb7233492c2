# SPDX-License-Identifier: Apache-2.0
"""Why a thread counts as what it does, as a document: stage, source, reason, confidence, what else would fit.

Pure. Unknown is null; a confidence is between 0 and 1. Where work has no stage, the reason and the remedies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hotstage.attribution.fingerprints import confidence_of
from hotstage.attribution.gaps import unattributed
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
_CONFIDENCE = {Source.MARK: 1.0, Source.NVTX: 0.98}


def explain(
    state: ProcessState, clock: Clock, names: Mapping[tuple[int, int], str], ended_ns: int | None = None
) -> Document:
    """The whole process; threads with the most launches first, THREADS_SHOWN of them.

    `ended_ns`: when it was found to have ended (CLOCK_MONOTONIC); None while it runs.
    """
    facts, pid = state.facts, state.facts.identity.pid
    ended_wall_ns = None if ended_ns is None else clock.wall_ns_of(ended_ns)
    threads = sorted(state.threads, key=lambda each: (-each.launches.total, each.tid))
    return {
        "pid": pid,
        "command": facts.command,
        "program": facts.program or None,
        "container": facts.container,
        "judged_at_ns": clock.wall_ns_of(state.at_ns),
        "ended_at": None if ended_wall_ns is None else rfc3339(ended_wall_ns),
        "ended_at_ns": ended_wall_ns,
        "marked": state.is_marked,
        "launches": _launches(state.launches),
        "fingerprint": _fingerprint(state),
        "threads_total": len(threads),
        "threads": [_thread(state, each, clock, names) for each in threads[:THREADS_SHOWN]],
        "unattributed": unattributed(state, state.launches, None),
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
        "unattributed": unattributed(state, thread.launches, thread),
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
        case Source.FINGERPRINT if thread.by_work:
            return f"the work of its bursts: {thread.work.why}"
        case Source.FINGERPRINT:
            return f"the shape of its steps: {thread.shape.why}"
    if not thread.launches.total:
        return "it has launched nothing yet"
    if not thread.launches.none:
        return "no mark now; its launches had one"
    if thread.by_work:
        return f"between the phases that the work of its bursts tells: {thread.work.why}"
    if thread.work.bursts:
        return (
            f"nothing says what it is doing; by its bursts it neither prefills nor decodes: {thread.work.why}"
        )
    return "nothing says what it is doing"


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
        if thread.work.limits is not None and not thread.by_work:
            found.append({"source": "fingerprint", "stage": "llm_decode", "text": thread.work.why})
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
