# SPDX-License-Identifier: Apache-2.0
"""Parts of a page that this source cannot fill, said plainly with what to do."""

from __future__ import annotations

from collections.abc import Sequence

from hotstage_explorer.components.node import Child, Node, node
from hotstage_explorer.components.words import nothing, prose
from hotstage_explorer.picture import Picture
from hotstage_explorer.questions import Answer


def needs_agent(what: str, picture: Picture) -> Node:
    """`what` begins the sentence: Single requests, Snapshots."""
    told = nothing(
        f"{what} need the agent",
        f"This explorer reads {picture.origin.name}, whose series are sums over many requests.",
    )
    remedy = node(
        "p", *prose("Start one beside the agent: `hotstage explore --agent http://127.0.0.1:9178`.")
    )
    return node("div", told, node("div", remedy, cls="nothing remedy"))


def unread(answer: Answer, *, elsewhere: Sequence[Child] = ()) -> Node:
    """In place of a value that there is none of: why, and what to do.

    `elsewhere`: where to look for an item that the agent does not know.
    """
    if answer.problem is None:
        return nothing("Not read yet")
    if elsewhere and "HTTP 404" in answer.problem:
        return _with_remedy("Not found", answer.problem, *elsewhere)
    return _with_remedy(
        "Could not be read",
        answer.problem,
        *prose(
            "It is asked for again every second. If it stays so, look into the agent's log, and see that "
            "agent and explorer are of one version: `hotstage --version`."
        ),
    )


def _with_remedy(title: str, problem: str, *remedy: Child) -> Node:
    told = nothing(title, f"{problem}.")
    return node("div", told, node("div", node("p", *remedy), cls="nothing remedy"))
