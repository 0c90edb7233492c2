# SPDX-License-Identifier: Apache-2.0
"""What a source of pictures is, and the ways in which asking another process fails. No I/O.

A source never raises for what the other side does: refusal, slowness, bad status and bad bodies become part
of the picture.
"""

from __future__ import annotations

import ipaddress
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from hotstage_explorer.picture import Origin, Picture
from hotstage_explorer.questions import Answer, Question


class Source(Protocol):
    """One `read` is one look at everything a page shows."""

    address: str
    origin: Origin
    """Who is asked, in words, before the first read; a picture may know it better."""

    def read(self, previous: Picture) -> Picture:
        """The next picture; what could not be read is carried over from `previous`, the reason beside it."""
        ...

    def answer(self, question: Question, previous: Answer) -> Answer:
        """What one page asks besides; on failure the value of `previous`, with the reason beside it.

        Called by another thread than `read`.
        """
        ...


class SettingError(ValueError):
    """A source cannot be made from these settings; the message names the setting and what it should be."""


class UnreachableError(Exception):
    """Nobody answers in time."""


class AnswerError(Exception):
    """Somebody answers, but not with what was asked for."""


def server_url(address: str, *, example: str, may_have_path: bool = False) -> SplitResult:
    """The parts of http(s)://host[:port][/path]; credentials, query and fragment are refused.

    Raises SettingError.
    """
    try:
        url = urlsplit(address)
        _ = url.port
    except ValueError as error:
        raise SettingError(f"{address!r} is not an address: {error}") from error
    has_more = url.query or url.fragment or (url.path.strip("/") and not may_have_path)
    if url.username or url.password:
        raise SettingError(f"an address carries no credentials; it is like {example}")
    if url.scheme not in ("http", "https") or not url.hostname or has_more:
        raise SettingError(f"{address!r} is not an address like {example}")
    return url


def plain_address(url: SplitResult) -> str:
    """scheme://host[:port][/path] without a slash at its end."""
    host = f"[{url.hostname}]" if url.hostname and ":" in url.hostname else url.hostname
    return f"{url.scheme}://{host}" + (f":{url.port}" if url.port else "") + url.path.rstrip("/")


def is_loopback(host: str | None) -> bool:
    """A name or address of this machine alone; other names are not looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
