# SPDX-License-Identifier: Apache-2.0
"""Which libraries are tried in a process of their own before everybody's are probed: by the word of the agent
that runs, else as one would do it with this configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hotstage.cli.doctor.host import Host
from hotstage.cli.doctor.library_scan import Plan
from hotstage.cli.doctor.peers import ask_agent
from hotstage.errors import HotstageError
from hotstage.probes.trial.report import PlacementVerdict


@dataclass(frozen=True, slots=True)
class Tried:
    """In words, and as data. `is_refuted`: probed where it crashed or answered otherwise."""

    told: str
    is_refuted: bool
    data: Mapping[str, object]


def agent_trials(host: Host) -> Mapping[str, Mapping[str, Any]]:
    """Build-id → what the running agent's trial found; empty without an agent, or trials."""
    answer = host.once(ask_agent)
    if isinstance(answer, HotstageError):
        return {}
    return {
        library["build_id"]: library["trial"]
        for process in answer["coverage"].get("processes", [])
        for library in process.get("libraries", [])
        if library.get("build_id") and isinstance(library.get("trial"), dict)
    }


def trial_of(host: Host, plan: Plan, trials: Mapping[str, Mapping[str, Any]]) -> Tried:
    """What is known of this library's trial."""
    found = trials.get(plan.build_id or "")
    if found is not None:
        return _by_agent(found)
    if not host.config.probes.canary:
        why = "[probes] canary is off"
    elif plan.untried is not None:
        why = plan.untried
    else:
        told = f"a trial calls {' and '.join(plan.tried_by)} in a process of its own first"
        return Tried(told, False, {"placement": None, "functions": list(plan.tried_by), "reason": None})
    return Tried(f"is attached untried: {why}", False, {"placement": None, "functions": [], "reason": why})


def _by_agent(found: Mapping[str, Any]) -> Tried:
    placement, reason = str(found.get("placement")), found.get("reason")
    functions = [str(name) for name in found.get("functions") or ()]
    named = " and ".join(functions)
    is_refuted = placement == PlacementVerdict.REFUTED
    if is_refuted:
        told = f"its trial by {named} failed: {reason}"
    elif placement == PlacementVerdict.VERIFIED:
        told = f"tried before its attach: {found.get('calls')} calls of {named}, counted and right"
    elif placement == PlacementVerdict.UNUSED:
        told = "no probe of it stands where one would have to be tried"
    else:
        told = f"was attached untried: {reason}"
    return Tried(told, is_refuted, {"placement": placement, "functions": functions, "reason": reason})
