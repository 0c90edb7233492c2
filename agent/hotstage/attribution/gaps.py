# SPDX-License-Identifier: Apache-2.0
"""Launches that count as no stage: of which threads, why, and what would help. Pure.

Each thread has one reason; launches of threads that have ended are told apart, because nothing is known of
them but their number. A remedy that was followed is told no more.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import Any

from hotstage.attribution.state import ProcessState, ThreadFacts
from hotstage.probes.launch_sources import LaunchSources

Document = dict[str, Any]

GAPS_RATIO = 0.02
"""Below this share of launches without a stage no remedy is told."""
THREADS_NAMED = 4
PATTERNS_TOLD = 4


class Cause(Enum):
    """Why launches count as no stage; the value says it."""

    BEFORE_RULE = "from before the rule was in force"
    OTHER_STREAM = "on streams that no rule names"
    OUTSIDE_MARKS = "outside the program's marks and ranges, and no rule that fits"
    UNMARKED_THREAD = "the program's marks and ranges leave this thread out, and no rule fits it"
    BEFORE_FUNCTION = (
        "launches before a function that tells a stage, or of functions that its stages never launch"
    )
    BEFORE_SHAPE = "from before the shape of its steps was known"
    OUTSIDE_PHASES = (
        "the first launches of each burst, bursts that are not clearly prefill or decode, and those from "
        "before its bursts were known"
    )
    NO_TELLING_LAUNCH = "its functions were learned, but it has launched none that tells a stage"
    FUNCTIONS_UNSEEN = (
        "its program was learned, but it looked its functions up before the probes were attached"
    )
    NO_TELLING_FUNCTION = "its program was learned, but no function of it tells a stage"
    NOTHING = "no mark, no NVTX range, no rule that fits, and its program was never learned under marks"
    ENDED = "of threads that have ended"


_NO_REMEDY = frozenset({Cause.BEFORE_RULE, Cause.BEFORE_SHAPE, Cause.OUTSIDE_PHASES})
_BY_MARKS = frozenset({Cause.OUTSIDE_MARKS, Cause.UNMARKED_THREAD})


@dataclass(frozen=True, slots=True)
class Part:
    """Launches of one cause; `threads` is empty for those that have ended."""

    cause: Cause
    launches: int
    threads: tuple[ThreadFacts, ...]

    @property
    def reason(self) -> str:
        """With the threads that it is about."""
        return f"{_named(self.threads)}: {self.cause.value}" if self.threads else self.cause.value


def unattributed(state: ProcessState, launches: LaunchSources, thread: ThreadFacts | None) -> Document:
    """Of the process, or of one thread of it: how many, and by cause where it is more than a trifle."""
    ratio = launches.none / launches.total if launches.total else None
    parts = parts_of(state, launches, thread) if ratio is not None and ratio >= GAPS_RATIO else []
    told = [part for part in parts if part.launches >= GAPS_RATIO * launches.total]
    return {
        "launches": launches.none,
        "ratio": ratio,
        "reason": "; ".join(_counted(part) for part in parts) or None,
        "parts": [
            {
                "launches": part.launches,
                "reason": part.cause.value,
                "threads": [each.tid for each in part.threads[:THREADS_NAMED]],
                "threads_total": len(part.threads),
            }
            for part in parts
        ],
        "remedies": list(dict.fromkeys(each for part in told for each in _remedies(state, part))),
    }


def parts_of(state: ProcessState, launches: LaunchSources, thread: ThreadFacts | None) -> list[Part]:
    """Most launches first; their launches add up to those without a stage."""
    threads = state.threads if thread is None else (thread,)
    by_cause: dict[Cause, list[ThreadFacts]] = defaultdict(list)
    for each in sorted(threads, key=lambda each: -each.launches.none):
        if each.launches.none:
            by_cause[_cause(state, each)].append(each)
    parts = [
        Part(cause, sum(each.launches.none for each in those), tuple(those))
        for cause, those in by_cause.items()
    ]
    ended = launches.none - sum(part.launches for part in parts)
    if ended > 0:
        parts.append(Part(Cause.ENDED, ended, ()))
    return sorted(parts, key=lambda part: -part.launches)


def _cause(state: ProcessState, thread: ThreadFacts) -> Cause:
    if thread.rules:
        return Cause.BEFORE_RULE
    if thread.stream_rules and thread.launches.rule:
        return Cause.OTHER_STREAM
    if thread.launches.marked:
        return Cause.OUTSIDE_MARKS
    if state.launches.marked:
        return Cause.UNMARKED_THREAD
    if thread.by_work:
        return Cause.OUTSIDE_PHASES
    if thread.launches.fingerprint:
        return Cause.BEFORE_SHAPE if thread.by_step else Cause.BEFORE_FUNCTION
    if state.by_function:
        return Cause.NO_TELLING_LAUNCH
    if state.program_launches:
        return Cause.NO_TELLING_FUNCTION if state.functions_known else Cause.FUNCTIONS_UNSEEN
    return Cause.NOTHING


def _counted(part: Part) -> str:
    return f"{part.launches} {part.reason}" if not part.threads else f"{part.launches} of {part.reason}"


def _named(threads: tuple[ThreadFacts, ...]) -> str:
    names = [each.name or str(each.tid) for each in threads[:THREADS_NAMED]]
    more = len(threads) - len(names)
    rest = f" and {more} more" if more else ""
    return f"thread{'s' if len(threads) > 1 else ''} {', '.join(names)}{rest}"


def _remedies(state: ProcessState, part: Part) -> list[str]:
    if part.cause in _NO_REMEDY:
        return []
    rules = _rule_remedies(state, part)
    if part.cause is Cause.OTHER_STREAM:
        return rules
    if part.cause in _BY_MARKS or state.launches.marked:
        return ["mark what runs outside its stages: `with marks.stage(…)`", *rules]
    found = [
        "mark its stages: `with marks.stage(…)` of hotstage-marks, or its vLLM plug-in",
        "where it has NVTX ranges: start it with NVTX_INJECTION64_PATH set to libhotstage_nvtx.so "
        "(`python -m hotstage_marks.nvtx --print` prints it)",
        *rules,
    ]
    if part.cause is Cause.FUNCTIONS_UNSEEN:
        found.insert(0, "start it again while the agent runs: then its functions are known by name")
    elif not state.program_launches:
        found.append("run it once with marks: its functions are learned, and known without marks later")
    return found


def _rule_remedies(state: ProcessState, part: Part) -> list[str]:
    """By the threads' names where the process's threads differ by them, else by its command line."""
    patterns = list(dict.fromkeys(thread_pattern(each.name) for each in part.threads if each.name))
    others = {thread_pattern(each.name) for each in state.threads} - set(patterns)
    if patterns and (len(patterns) > 1 or others or len(state.threads) == 1):
        return [_rule(f"thread = {_toml(each)}") for each in patterns[:PATTERNS_TOLD]]
    told = state.facts.program.rpartition(" ")[2]  # its digits were left out
    return [_rule(f"command = {_toml('*' + '*'.join(map(_literal, told.split('#'))) + '*')}")]


def _rule(by: str) -> str:
    return f'add a rule: [[stages.rules]] {by}, stage = "…"'


def thread_pattern(name: str) -> str:
    """`llm-0` → `llm-*`: a glob for the threads that differ from this one by their last number only."""
    stem = re.sub(r"[0-9]+$", "", name)
    has_stem = stem != name and re.search(r"[^\W\d_]", stem) is not None
    return _literal(stem) + "*" if has_stem else _literal(name)


def _literal(name: str) -> str:
    """A glob that fits this name only: strangers choose it."""
    return re.sub(r"[*?[]", r"[\g<0>]", name)


def _toml(text: str) -> str:
    """A string in TOML; JSON's escapes are among TOML's."""
    return json.dumps(text, ensure_ascii=False)
