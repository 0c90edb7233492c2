# SPDX-License-Identifier: Apache-2.0
"""Where pictures come from: the only HTTP of this program. One `read` is one look at everything a page shows.

A source never raises for what the other side does: refusal, slowness, bad status and bad bodies become part
of the picture. It follows no redirect, uses no proxy, asks for no compression, bounds bodies and waits.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError

from hotstage_explorer import parse
from hotstage_explorer.picture import Picture, Problem, Section

MAX_BODY_BYTES = 16 << 20


class Source(Protocol):
    address: str

    def read(self, previous: Picture) -> Picture:
        """The next picture; what could not be read is carried over from `previous`, the reason beside it."""
        ...


class AddressError(ValueError):
    """The address is not one that an agent can have."""


class UnreachableError(Exception):
    """Nobody answers in time."""


class AnswerError(Exception):
    """Somebody answers, but not with what was asked for."""


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

    def __init__(
        self,
        address: str,
        *,
        timeout_seconds: float = 1.5,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Raises AddressError for anything but http(s)://host[:port]."""
        try:
            url = urlsplit(address)
            port = url.port
        except ValueError as error:
            raise AddressError(f"{address!r} is not an address: {error}") from error
        if (
            url.scheme not in ("http", "https")
            or not url.hostname
            or url.username
            or url.path.strip("/")
            or url.query
        ):
            raise AddressError(f"{address!r} is not an address like http://127.0.0.1:9178")
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        self.address = f"{url.scheme}://{host}" + (f":{port}" if port else "")
        self._shares_clock = _is_loopback(url.hostname)
        self._timeout_seconds = timeout_seconds
        self._monotonic, self._wall_ns = monotonic, wall_ns
        self._pool = urllib3.PoolManager(maxsize=1, retries=False)
        self._tags: dict[str, tuple[str, dict[str, Any]]] = {}

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
                f"{self.address} answers, but not like a hotstage agent: {reason}.",
                "Check the address given with --agent, and that agent and explorer are of the same version.",
            )
            return replace(previous, version=previous.version + 1, link="unreachable", problem=problem)
        return self._joined(previous, sections, bodies, now)

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
            heat_basis=parse.basis(bodies[0]) or previous.heat_basis,
            heat=sections["heat"],
            stages=sections["stages"],
            windows=sections["windows"],
            breakers=sections["breakers"],
            coverage=sections["coverage"],
        )

    def _get(self, part: _Part, give_up: float) -> dict[str, Any]:
        path = part.path
        wait = min(self._timeout_seconds, give_up - self._monotonic())
        if wait <= 0:
            raise UnreachableError(f"{path} was not asked for: the answers before it took too long")
        known = self._tags.get(path)
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "hotstage-explorer",
        }
        if known:
            headers["If-None-Match"] = known[0]
        try:
            answer = self._pool.request(
                "GET",
                self.address + path + part.query,
                headers=headers,
                timeout=wait,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
        except LocationParseError as error:
            raise UnreachableError(str(error)) from error
        except HTTPError as error:
            raise UnreachableError(_plain(error, wait)) from error
        try:
            return self._content(path, answer, self._monotonic() + wait, known)
        except HTTPError as error:
            raise AnswerError(f"{path} broke off: {_plain(error, wait)}") from error
        finally:
            answer.close()  # keeps the connection when the body was read to its end

    def _content(
        self,
        path: str,
        answer: urllib3.BaseHTTPResponse,
        give_up: float,
        known: tuple[str, dict[str, Any]] | None,
    ) -> dict[str, Any]:
        raw = self._bounded(path, answer, give_up)
        if answer.status == 304 and known:
            return known[1]
        if answer.status != 200:
            raise AnswerError(f"{path} answered HTTP {answer.status}{_said(raw)}")
        try:
            content = parse.body(raw)
        except parse.BodyError as error:
            raise AnswerError(f"{path} answered with {error}") from error
        tag = answer.headers.get("ETag")
        if tag and len(tag) < 200:
            self._tags[path] = (tag, content)
        return content

    def _bounded(self, path: str, answer: urllib3.BaseHTTPResponse, give_up: float) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while chunk := answer.read1(1 << 16):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise AnswerError(f"{path} sent more than {MAX_BODY_BYTES >> 20} MiB")
            if self._monotonic() > give_up:
                raise AnswerError(f"{path} did not finish its answer in time")
        return b"".join(chunks)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _nobody(address: str, error: UnreachableError) -> Problem:
    return Problem(
        f"No answer from the agent at {address}: {error}.",
        "Start it with `hotstage agent`, or give its address with --agent. This page tries every second.",
    )


def _plain(error: HTTPError, wait: float) -> str:
    """urllib3's wording, which names objects by address, → words for people."""
    said = str(error)
    if "timed out" in said.lower():
        return f"no answer within {wait:.1f} s"
    for words in (
        "Connection refused",
        "Name or service not known",
        "Temporary failure in name resolution",
        "No route to host",
    ):
        if words in said:
            return words[0].lower() + words[1:]
    return type(error).__name__.removesuffix("Error").removesuffix("Exception").lower() + " error"


def _said(raw: bytes) -> str:
    """The agent's own error sentence, if there is one."""
    try:
        error = parse.body(raw).get("error")
    except parse.BodyError:
        return ""
    message = parse.text(error.get("message")) if isinstance(error, dict) else ""
    return f": {message}" if message else ""
