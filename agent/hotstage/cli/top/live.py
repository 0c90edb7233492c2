# SPDX-License-Identifier: Apache-2.0
"""`hotstage top` on a terminal: a thread of its own asks the agent, so that keys answer while it does not."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace

from hotstage.api.top_types import Top
from hotstage.cli.client import AgentClient
from hotstage.cli.top.look import Look, top_of
from hotstage.cli.top.screen import Choice, Trouble, last_first_row, screen
from hotstage.cli.top.terminal import Terminal
from hotstage.cli.top.views import VIEWS
from hotstage.errors import HotstageError

IDLE_SECONDS = 1.0
"""How often the screen is drawn again without news: the age of a silence goes on."""


@dataclass(frozen=True, slots=True)
class Known:
    """The newest answer, when it came, and why there is none after it."""

    top: Top
    at_seconds: float
    problem: HotstageError | None = None

    def trouble(self) -> Trouble | None:
        if self.problem is None:
            return None
        return Trouble(self.problem.message, self.problem.remedy, time.monotonic() - self.at_seconds)


class Watcher:
    """Looks again every `interval_seconds`; `known` is replaced whole, then `terminal` is woken."""

    def __init__(self, client: AgentClient, first: Look, interval_seconds: float, terminal: Terminal) -> None:
        self._client = client
        self._before = first
        self._interval_seconds = interval_seconds
        self._terminal = terminal
        self._stop = threading.Event()
        # A daemon: an agent that hangs must not keep whoever quits.
        self._thread = threading.Thread(target=self._run, name="hotstage-top", daemon=True)
        self.known = Known(top_of(None, first), first.at_seconds)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_seconds):
            try:
                now = Look.at(self._client)
                self.known = Known(top_of(self._before, now), now.at_seconds)
                self._before = now
            except HotstageError as error:
                self.known = replace(self.known, problem=error)
            self._terminal.wake()


def watch(client: AgentClient, interval_seconds: float, choice: Choice) -> None:
    """Until `q`. Raises HotstageError where the first look fails: then there is nothing to show."""
    terminal = Terminal()
    watcher = Watcher(client, Look.at(client), interval_seconds, terminal)
    with terminal.taken():
        watcher.start()
        try:
            _follow(terminal, watcher, choice)
        finally:
            watcher.stop()


def _follow(terminal: Terminal, watcher: Watcher, choice: Choice) -> None:
    while True:
        known, size = watcher.known, terminal.size
        trouble = known.trouble()
        last = last_first_row(known.top, choice, size, trouble)
        choice = replace(choice, first_row=min(choice.first_row, last))
        terminal.draw(screen(known.top, choice, size, VIEWS, trouble))
        for key in terminal.keys(IDLE_SECONDS):
            if key in ("q", "Q"):
                return
            choice = pressed(choice, key, page=max(1, size[1] // 2))


def pressed(choice: Choice, key: str, page: int) -> Choice:
    """What a key makes of what was chosen; a key that means nothing changes nothing."""
    for view in VIEWS:
        if key == view.key:
            return replace(choice, view=view, first_row=0)
    if key == "s":
        sorts = [*choice.view.sorts, *([None] if choice.view.sort is None else [])]
        after = sorts[(sorts.index(choice.sorted_by) + 1) % len(sorts)]
        return replace(choice, sort={**choice.sort, choice.view.name: after}, first_row=0)
    steps = {"j": 1, "k": -1, "page down": page, "page up": -page}
    return replace(choice, first_row=max(0, choice.first_row + steps.get(key, 0)))
