# SPDX-License-Identifier: Apache-2.0
"""Attachments that can be taken back: all at once (the kill switch), those of one process (the governor), and
those that the deny list forbids from the start.

A uprobe belongs to a file, not to a process. To take it from one process that shares a library with others,
the library's links are let go and each of the others gets links of its own, which leave the first one's code
untouched (rung S). Where that is not to be had, the library is let go for all, and coverage says for whom.
Between both the others are unobserved for some milliseconds: their epoch ends and a new one begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from hotstage.clock import Clock
from hotstage.errors import HotstageError
from hotstage.probes.attachments import Attachments
from hotstage.probes.coverage import LibraryState
from hotstage.probes.departures import Departures
from hotstage.probes.discovery.follower import FileKey
from hotstage.probes.discovery.processes import ProcessId, ProcessView
from hotstage.probes.discovery.targets import Candidate, discard_candidate
from hotstage.probes.held_libraries import HeldLibrary, Use
from hotstage.probes.loader.base import Attachment, Link, Loader, OpenLibrary
from hotstage.probes.loader.links import detach

OWN_LINKS_LIMIT = 16
"""Processes of one library that get links of their own: each of them pays a little for every other one's."""
_HANGING_SECONDS = 0.5
"""How long the kill switch waits for an attach that hangs in the kernel, before it lets go of the others."""
_TAKEN_BACK = frozenset({LibraryState.ATTACHED, LibraryState.ALIAS, LibraryState.OFF})

log = logging.getLogger(__name__)

Refusal = Callable[[OpenLibrary], str | None]


def _allow(library: OpenLibrary) -> str | None:
    return None


class RestrainedAttachments(Attachments):
    """`let_go` and `take_up` for all, `withdraw` and `restore` for one process; any thread may call."""

    def __init__(
        self,
        loader: Loader,
        clock: Clock,
        *,
        linger_ns: int,
        departures: Departures,
        denies: Refusal = _allow,
        has_own_links: bool = False,
        user_of: Callable[[int], int | None] = lambda pid: None,
    ) -> None:
        """`has_own_links`: whether this rung knows links of one process."""
        super().__init__(loader, clock, linger_ns=linger_ns, departures=departures, user_of=user_of)
        self._denies = denies
        self._has_own_links = has_own_links
        self._off: str | None = None
        self._withdrawn: dict[int, str] = {}
        # Libraries whose links are those of single processes: pid → what holds it there.
        self._own: dict[HeldLibrary, dict[int, Attachment]] = {}

    @property
    def off(self) -> str | None:
        """Why nothing is attached; None while libraries are."""
        return self._off

    def let_go(self, reason: str) -> float:
        """Detach everything, attach nothing from now on; the seconds it took."""
        self._off = reason  # first: what the kernel is attaching now is let go when it gives it back
        is_alone = self._attaching.acquire(timeout=_HANGING_SECONDS)
        try:
            with self._lock:
                self._end_all_epochs()
                links = [link for held in self._held.values() for link in self._links(held)]
                for held in self._held.values():
                    self._set_off(held, reason)
                self._own.clear()
            return detach(links)
        finally:
            if is_alone:
                self._attaching.release()

    def take_up(self) -> None:
        """Forget what was found: the watch, told to look anew, brings it again and it is attached."""
        with self._attaching:
            self._off = None
            with self._lock:
                found = list(self._held.values())
                self._held.clear()
                self._by_file.clear()
                self._idle.clear()
                for entry in self._processes.values():
                    entry.uses.clear()
            for held in found:
                discard_candidate(held.candidate)

    def withdraw(self, pid: int, reason: str) -> None:
        """Take every probe out of one process. Others that share its libraries keep theirs where they can."""
        with self._attaching:
            if not self._libraries_of(pid):
                return  # it has ended since it was judged; another one may get its pid
            self._withdrawn[pid] = reason
            self._rearrange(pid)

    def restore(self, pid: int) -> None:
        """Undo `withdraw`."""
        with self._attaching:
            if self._withdrawn.pop(pid, None) is not None:
                self._rearrange(pid)

    def process_gone(self, process: ProcessId, at_ns: int) -> None:
        """As `Follower.process_gone`; what was withdrawn for its sake comes back."""
        with self._attaching:
            held = self._libraries_of(process.pid)
            super().process_gone(process, at_ns)
            for each in held:
                self._end_own(each, process.pid)
            if self._withdrawn.pop(process.pid, None) is not None:
                for each in held:
                    self._arrange(each)

    def stepped_calls(self, pid: int) -> frozenset[int]:
        """Ids of calls that the process pays a single step for: probed on an instruction that is not
        emulated.
        """
        with self._lock:  # the tick asks: it must not wait for the kernel's attaching
            points = [
                point
                for held in self._libraries_of(pid)
                for link in self._links(held.counted_through)
                for point in link.points
            ]
        return frozenset(point.call_id for point in points if not point.is_emulated)

    # ---- inside

    def _refusal(self, candidate: Candidate) -> tuple[LibraryState, str] | None:
        denied = self._denies(candidate.parsed.library)
        if denied is not None:
            return LibraryState.DENIED, denied
        return (LibraryState.OFF, self._off) if self._off is not None else None

    def _too_late(self, held: HeldLibrary) -> tuple[Link, ...]:
        if self._off is None or held.attachment is None:
            return ()
        links = self._links(held)
        self._set_off(held, self._off)
        return links

    def _links(self, held: HeldLibrary) -> tuple[Link, ...]:
        own = self._own.get(held)
        if own is None:
            return super()._links(held)
        return tuple(link for attachment in own.values() for link in attachment.links)

    def _use(self, process: ProcessView, file: FileKey, held: HeldLibrary, mapped_ns: int) -> None:
        super()._use(process, file, held, mapped_ns)
        source = held.counted_through
        if source in self._own or (source.state is LibraryState.OFF and self._off is None):
            self._arrange(source)  # a new process of a library that some other one may not be probed in
        elif process.identity.pid in self._withdrawn and self._off is None:
            self._arrange(source)

    def _forget(self, held: HeldLibrary) -> None:
        super()._forget(held)
        self._own.pop(held, None)

    def _twin_of(self, candidate: Candidate) -> HeldLibrary | None:
        found = super()._twin_of(candidate)
        if found is not None or not self._withdrawn:
            return found
        mine = candidate.parsed.library
        off = [held for held in self._held.values() if held.state is LibraryState.OFF]
        for held in off:
            other = held.candidate.parsed.library
            if (mine.inode, mine.size, mine.build_id) == (other.inode, other.size, other.build_id):
                return held
        return None

    def _end_own(self, held: HeldLibrary, pid: int) -> None:
        own = self._own.get(held)
        if own is None or pid not in own:
            return
        with self._lock:
            links = own.pop(pid).links
            held.attachment = next(iter(own.values()), None)
        detach(links)

    def _rearrange(self, pid: int) -> None:
        if self._off is None:
            for held in {each.counted_through for each in self._libraries_of(pid)}:
                self._arrange(held)

    def _libraries_of(self, pid: int) -> list[HeldLibrary]:
        return [h for h in self._held.values() if any(user.pid == pid for user in h.users)]

    def _arrange(self, held: HeldLibrary) -> None:
        """Links of one library as its users are: one for all, one for each that may be watched, or none."""
        if held.state not in _TAKEN_BACK:
            return
        users = {use.pid for each in self._seen_as(held) for use in each.users}
        barred = users & self._withdrawn.keys()
        wanted = users - barred
        own = self._own.get(held)
        if own is not None and barred and set(own) <= wanted and len(wanted) <= OWN_LINKS_LIMIT:
            self._add_own(held, own, wanted - set(own))
            return
        now_ns = self._clock.monotonic_ns()
        if own is None and not barred and held.state is LibraryState.ATTACHED:
            return
        with self._lock:
            links = self._links(held)
            self._own.pop(held, None)
            for process, use in self._uses_of(held):
                self._end_epoch(process, use, now_ns)
            reason = "; ".join(self._withdrawn[pid] for pid in sorted(barred))
            self._set_off(held, reason)
        detach(links)
        if not barred:
            self._attach_again(held)
        elif self._has_own_links and len(wanted) <= OWN_LINKS_LIMIT:
            self._add_own(held, self._own.setdefault(held, {}), wanted)

    def _attach_again(self, held: HeldLibrary) -> None:
        attachment = self._try(held, 0)
        if attachment is None:
            return
        with self._lock:
            held.attachment, held.state, held.reason = attachment, LibraryState.ATTACHED, None
            held.attached_ns = self._clock.monotonic_ns()
            links = self._too_late(held)
            for _, use in self._uses_of(held):
                use.since_ns = None if links else held.attached_ns
        detach(links)

    def _add_own(self, held: HeldLibrary, own: dict[int, Attachment], pids: set[int]) -> None:
        for pid in sorted(pids):
            attachment = self._try(held, pid)
            if attachment is None:
                continue
            with self._lock:
                is_late = self._off is not None
                if not is_late:
                    own[pid] = attachment
            if is_late:
                detach(attachment.links)
                return
            with self._lock:
                held.attachment = held.attachment or attachment
                for process, use in self._uses_of(held):
                    if process.pid == pid:
                        use.since_ns, use.from_start = self._clock.monotonic_ns(), False

    def _try(self, held: HeldLibrary, pid: int) -> Attachment | None:
        library = held.candidate.parsed.library
        try:
            return self._loader.attach(library, held.candidate.own_points, pid=pid)
        except (HotstageError, OSError) as error:
            log.warning("attach failed", extra={"path": library.path, "pid": pid, "reason": str(error)})
            held.reason = str(error)
            return None

    def _seen_as(self, held: HeldLibrary) -> list[HeldLibrary]:
        return [each for each in self._held.values() if each.counted_through is held]

    def _uses_of(self, held: HeldLibrary) -> list[tuple[ProcessId, Use]]:
        return [
            (process, use)
            for process, entry in self._processes.items()
            for use in entry.uses.values()
            if use.held is not None and use.held.counted_through is held
        ]

    def _end_all_epochs(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for process, entry in self._processes.items():
            for use in entry.uses.values():
                self._end_epoch(process, use, now_ns)

    def _set_off(self, held: HeldLibrary, reason: str) -> None:
        if held.state in _TAKEN_BACK:
            held.attachment, held.reason = None, reason
            if held.alias_of is None:
                held.state = LibraryState.OFF
