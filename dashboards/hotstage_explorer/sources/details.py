# SPDX-License-Identifier: Apache-2.0
"""Answers to the questions of single pages, from one agent's HTTP API."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from hotstage_explorer.documents import classes, latency, requests, snapshots, waterfall
from hotstage_explorer.picture import Section
from hotstage_explorer.questions import Answer, Kind, Question
from hotstage_explorer.sources.ask import Asker
from hotstage_explorer.sources.base import AnswerError, UnreachableError

TIMEOUT_SECONDS = 3.0
"""Snapshots of thousands of requests are megabytes."""


@dataclass(frozen=True, slots=True)
class _Path:
    """Where a kind of question is answered; `{}` in the path is its item."""

    path: str
    parse: Callable[[dict[str, Any], Any], Any]
    """(body, value known so far) → value."""
    query: Callable[[Any], str] = lambda known: ""
    is_fixed: Callable[[Any], bool] = lambda value: False
    """Whether a value that was read stays as it is."""


def _after(known: requests.RequestList | None) -> str:
    return f"?after={known.next if known else 0}&limit={requests.KEPT}"


PATHS: dict[Kind, _Path] = {
    "requests": _Path(
        "/v1/requests",
        lambda body, known: requests.requests(body, known or requests.RequestList()),
        _after,
    ),
    "latency": _Path("/v1/latency", lambda body, known: latency.latency(body)),
    "components": _Path("/v1/components", lambda body, known: latency.components(body)),
    "classes": _Path("/v1/classes", lambda body, known: classes.classes(body)),
    "snapshot": _Path("/v1/snapshot", lambda body, known: snapshots.snapshot(body)),
    "snapshots": _Path(
        "/v1/snapshots", lambda body, known: snapshots.stored(body), lambda known: "?limit=100"
    ),
    "stored": _Path(
        "/v1/snapshots/{}", lambda body, known: snapshots.snapshot(body), is_fixed=lambda value: True
    ),
    "plan": _Path("/v1/snapshot/plan", lambda body, known: snapshots.plan(body)),
    "stored_plan": _Path(
        "/v1/snapshots/{}/plan", lambda body, known: snapshots.plan(body), is_fixed=lambda value: True
    ),
    "request": _Path(
        "/v1/requests/{}", lambda body, known: waterfall.waterfall(body), is_fixed=lambda value: True
    ),
}
"""Where each kind of question is answered."""


class Details:
    """Not thread-safe."""

    def __init__(self, address: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._asker = Asker(address, monotonic=monotonic)
        self._monotonic = monotonic

    def answer(self, question: Question, previous: Answer) -> Answer:
        """The newest value, or the one before with the reason why there is no newer one."""
        place = PATHS[question.kind]
        if previous.value is not None and previous.problem is None and place.is_fixed(previous.value):
            return previous
        path = place.path.replace("{}", quote(question.item, safe=""))
        try:
            body = self._asker.get(path, place.query(previous.value), wait=TIMEOUT_SECONDS)
        except (AnswerError, UnreachableError) as error:
            return replace(previous, problem=str(error))
        return Section(place.parse(body, previous.value), self._monotonic())
