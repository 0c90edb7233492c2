# SPDX-License-Identifier: Apache-2.0
"""Answers for all browsers: a thread that puts each question to the source once a period while it is asked.

As the feed does for the picture that all pages share; here, what single pages want besides. Bounded: of too
many questions, the one that nobody has asked for longest is dropped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hotstage_explorer.questions import UNREAD, Answer, Question
from hotstage_explorer.sources.base import Source

log = logging.getLogger(__name__)

MAX_QUESTIONS = 32


@dataclass(slots=True)
class _Case:
    answer: Answer = UNREAD
    asked_at: float = 0.0
    tried_at: float = float("-inf")
    version: int = 0


class Desk:
    """`ask` is what callbacks use; it waits only where the answer at hand is older than two periods."""

    def __init__(
        self,
        source: Source,
        *,
        period_seconds: float = 1.0,
        rest_after_seconds: float = 15.0,
        patience_seconds: float = 2.0,
    ) -> None:
        self._source = source
        self._period_seconds = period_seconds
        self._rest_after_seconds = rest_after_seconds
        self._patience_seconds = patience_seconds
        self._changed = threading.Condition()
        self._cases: dict[Question, _Case] = {}
        self._closed = False
        self._thread: threading.Thread | None = None

    def ask(self, question: Question) -> tuple[Answer, int]:
        """(the newest answer, how many reads it took so far); keeps the question awake."""
        return self.ask_all((question,))[question]

    def ask_all(self, questions: Iterable[Question]) -> dict[Question, tuple[Answer, int]]:
        """The same for several, which share one wait: a page of four is not four times as slow."""
        with self._changed:
            cases = {}
            for question in questions:
                cases[question] = case = self._case(question)
                case.asked_at = time.monotonic()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="desk", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._closed or all(map(self._is_fresh, cases.values())), self._patience_seconds
            )
            return {question: (case.answer, case.version) for question, case in cases.items()}

    def close(self) -> None:
        """End the thread; returns when it has ended, or after a read's own deadline."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread:
            thread.join(5.0)

    def _case(self, question: Question) -> _Case:
        if question not in self._cases and len(self._cases) >= MAX_QUESTIONS:
            del self._cases[min(self._cases, key=lambda each: self._cases[each].asked_at)]
        return self._cases.setdefault(question, _Case())

    def _is_fresh(self, case: _Case) -> bool:
        return time.monotonic() - case.tried_at < 2 * self._period_seconds

    def _due(self) -> Question | None:
        """The question that has waited longest, of those that somebody asks and whose period is over."""
        now = time.monotonic()
        due = [
            (case.tried_at, question)
            for question, case in self._cases.items()
            if now - case.asked_at < self._rest_after_seconds and now - case.tried_at >= self._period_seconds
        ]
        return min(due, key=lambda each: each[0])[1] if due else None

    def _pause(self) -> float | None:
        """Until the next question is due; None while nobody asks any."""
        now = time.monotonic()
        awake = [
            case.tried_at + self._period_seconds - now
            for case in self._cases.values()
            if now - case.asked_at < self._rest_after_seconds
        ]
        return max(0.01, min(awake)) if awake else None

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (question := self._due()) is None:
                    self._changed.wait(self._pause())
                if self._closed or question is None:
                    return
                previous = self._cases[question].answer
            answer = self._read(question, previous)
            with self._changed:
                case = self._cases.get(question)
                if case:
                    case.version += answer is not case.answer
                    case.answer = answer
                    case.tried_at = time.monotonic()
                self._changed.notify_all()

    def _read(self, question: Question, previous: Answer) -> Answer:
        try:
            return self._source.answer(question, previous)
        except Exception as error:
            # A fault of ours must be seen on the page, not freeze it without a word.
            log.exception("asking the source failed")
            return replace(previous, problem=f"the explorer failed: {error!r}; its log has the details")
