# SPDX-License-Identifier: Apache-2.0
"""What a page may ask a source besides its picture. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hotstage_explorer.picture import Section

Kind = Literal[
    "requests",
    "request",
    "components",
    "latency",
    "classes",
    "snapshot",
    "snapshots",
    "stored",
    "plan",
    "stored_plan",
]

Answer: TypeAlias = Section[Any]
"""Its value is None before the first good read; `documents` has the type that each kind's value has."""

UNREAD: Answer = Section(None)


@dataclass(frozen=True, slots=True)
class Question:
    """`item` is whose: a request's number, a snapshot's id."""

    kind: Kind
    item: str = ""
