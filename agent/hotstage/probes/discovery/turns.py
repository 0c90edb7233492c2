# SPDX-License-Identifier: Apache-2.0
"""Whose look-up comes next: that of the user whose look-ups have taken the least of a processor lately.

A forged library takes half a second of one. In one line for all, somebody else's waits for a minute behind a
hundred of them, and whoever goes on making them has the agent busy for good. So each user has a debt, which
is paid back with time, and whose debt is too large waits. Root and those whose user is not known have none.

Clock: CLOCK_MONOTONIC ns. Its caller has the lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

DEBT_NS = 5_000_000_000
"""Of a processor, what a user's look-ups may take at once: some hundred large libraries."""
PAID_BACK = 0.1
"""And what they may take for good, in processors."""
WAITING_LIMIT = 1024
"""Look-ups of one user that may wait; what is beyond is refused, and found by a later scan."""
_DEBTORS_LIMIT = 1024


class Turns:
    """Debts by user, and how many look-ups of each wait."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._debts: dict[int, tuple[int, int]] = {}
        """User → when it was charged last, what it owed then."""
        self._waiting: Counter[int] = Counter()

    def queued(self, user: int | None) -> bool:
        """One more waits; False: this user has as many waiting as one may."""
        if not user:
            return True
        if self._waiting[user] >= WAITING_LIMIT:
            return False
        self._waiting[user] += 1
        return True

    def taken(self, user: int | None) -> None:
        """One that waited waits no more."""
        if user:
            self._waiting[user] -= 1
            if not self._waiting[user]:
                del self._waiting[user]

    def charge(self, user: int | None, took_ns: int) -> None:
        """A look-up of this user's has taken so much of a processor."""
        if not user:
            return
        self._debts[user] = (self._now_ns(), self.debt_ns(user) + took_ns)
        if len(self._debts) > _DEBTORS_LIMIT:
            self._debts = {each: debt for each, debt in self._debts.items() if self.debt_ns(each)}

    def debt_ns(self, user: int | None) -> int:
        """What is not paid back yet."""
        if not user or user not in self._debts:
            return 0
        since_ns, debt_ns = self._debts[user]
        return max(0, debt_ns - int((self._now_ns() - since_ns) * PAID_BACK))

    def is_held_back(self, user: int | None) -> bool:
        """Whether this user's look-ups wait until it owes less."""
        return self.debt_ns(user) > DEBT_NS
