# SPDX-License-Identifier: Apache-2.0
"""Pictures from one agent's HTTP API: five bodies of one moment, asked for in turn over one connection."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hotstage_explorer import parse
from hotstage_explorer.picture import AGENT, Picture, Problem, Section
from hotstage_explorer.questions import Answer, Question
from hotstage_explorer.sources.ask import Asker
from hotstage_explorer.sources.base import (
    AnswerError,
    UnreachableError,
    is_loopback,
    plain_address,
    server_url,
)
from hotstage_explorer.sources.details import Details


@dataclass(frozen=True, slots=True)
class _Part:
    """One path of the agent and what its body becomes."""

    name: str
    path: str
    query: str
    parse: Callable[[dict[str, Any]], Any]


_PARTS = (
    _Part("heat", "/v1/heat", "", parse.points),
    _Part("stages", "/v1/stages", "", parse.stages),
    _Part("windows", "/v1/windows", "?state=all&limit=50", parse.windows),
    _Part("breakers", "/v1/breakers", "", parse.breakers),
    _Part("coverage", "/v1/coverage", "", parse.coverage),
)


class AgentSource:
    """A hotstage agent over TCP, e.g. http://127.0.0.1:9178."""

    origin = AGENT

    def __init__(
        self,
        address: str,
        *,
        timeout_seconds: float = 1.5,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Raises SettingError for anything but http(s)://host[:port]."""
        url = server_url(address, example="http://127.0.0.1:9178")
        self.address = plain_address(url)
        self._shares_clock = is_loopback(url.hostname)
        self._timeout_seconds = timeout_seconds
        self._monotonic, self._wall_ns = monotonic, wall_ns
        self._asker = Asker(self.address, monotonic=monotonic)
        self._details = Details(self.address, monotonic=monotonic)

    def read(self, previous: Picture) -> Picture:
        """Ask for all parts in turn, at most twice the timeout in all."""
        now = self._monotonic()
        give_up = now + 2 * self._timeout_seconds
        sections: dict[str, Section[Any]] = {}
        bodies: list[dict[str, Any]] = []
        for part in _PARTS:
            old: Section[Any] = getattr(previous, part.name)
            try:
                content = self._get(part, give_up)
                sections[part.name] = Section(part.parse(content), now)
                bodies.append(content)
            except UnreachableError as error:
                if not bodies and not sections:
                    return replace(
                        previous,
                        version=previous.version + 1,
                        link="unreachable",
                        problem=_nobody(self.address, error),
                    )
                sections[part.name] = replace(old, problem=str(error))
            except AnswerError as error:
                sections[part.name] = replace(old, problem=str(error))
        if not bodies:
            reason = next(s.problem for s in sections.values() if s.problem)
            problem = Problem(
                "Agent unreachable",
                f"{self.address} answers, but not like a hotstage agent: {reason}.",
                "Check the address given with --agent, and that agent and explorer are of the same version.",
            )
            return replace(previous, version=previous.version + 1, link="unreachable", problem=problem)
        return self._joined(previous, sections, bodies, now)

    def answer(self, question: Question, previous: Answer) -> Answer:
        """Over a connection of its own: a long answer holds no picture back."""
        return self._details.answer(question, previous)

    def _joined(
        self, previous: Picture, sections: dict[str, Section[Any]], bodies: list[dict[str, Any]], now: float
    ) -> Picture:
        tick = max((t for t in (parse.integer(b.get("tick")) for b in bodies) if t is not None), default=None)
        wall_ns = max(
            (t for t in (parse.integer(b.get("at_ns")) for b in bodies) if t is not None), default=None
        )
        moved_at = previous.tick_moved_at
        has_moved = tick != previous.tick if tick is not None else wall_ns != previous.tick_wall_ns
        if moved_at is None or has_moved:
            # Another host's wall clock says nothing about age here; the moment its tick moved does.
            lag = (self._wall_ns() - wall_ns) / 1e9 if self._shares_clock and wall_ns is not None else 0.0
            moved_at = now - max(0.0, lag)
        return replace(
            previous,
            version=previous.version + 1,
            link="live",
            problem=None,
            host=next((parse.text(b.get("host"), 64) for b in bodies if b.get("host")), previous.host),
            tick=tick,
            tick_wall_ns=wall_ns,
            tick_moved_at=moved_at,
            says_stale=any(b.get("stale") is True for b in bodies),
            off_since=next((since for b in bodies if (since := parse.text(b.get("off_since"), 64))), None),
            heat_basis=parse.basis(bodies[0]) or previous.heat_basis,
            heat=sections["heat"],
            stages=sections["stages"],
            windows=sections["windows"],
            breakers=sections["breakers"],
            coverage=sections["coverage"],
        )

    def _get(self, part: _Part, give_up: float) -> dict[str, Any]:
        """The part's body; an unchanged one is not sent again."""
        wait = min(self._timeout_seconds, give_up - self._monotonic())
        if wait <= 0:
            raise UnreachableError(f"{part.path} was not asked for: the answers before it took too long")
        return self._asker.get(part.path, part.query, wait=wait)


def _nobody(address: str, error: UnreachableError) -> Problem:
    return Problem(
        "Agent unreachable",
        f"No answer from the agent at {address}: {error}.",
        "Start it with `hotstage agent`, or give its address with --agent. This page tries every second.",
    )
