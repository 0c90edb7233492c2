# SPDX-License-Identifier: Apache-2.0
"""Parts of a page that this source cannot fill, said plainly with what to do."""

from __future__ import annotations

from hotstage_explorer.components.node import Node, node
from hotstage_explorer.components.words import nothing, prose
from hotstage_explorer.picture import Picture


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
