# SPDX-License-Identifier: Apache-2.0
"""The only HTTP of this program: a GET with a bounded body and a bounded wait.

It follows no redirect, uses no proxy, asks for no compression, and never puts an address or a header of a
request into an error's text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError

from hotstage_explorer.sources.base import AnswerError, UnreachableError

MAX_BODY_BYTES = 16 << 20

_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "hotstage-explorer",
}
_FAILURES = (
    "Connection refused",
    "Name or service not known",
    "Temporary failure in name resolution",
    "No route to host",
    "certificate verify failed",
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Wire:
    """One connection at a time to one server; not thread-safe."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._pool = urllib3.PoolManager(maxsize=1, retries=False)

    def get(self, url: str, *, what: str, wait: float, headers: Mapping[str, str]) -> Reply:
        """`what` names the request in errors; `wait` is for the head of the answer, and again for its body.

        Raises UnreachableError before an answer begins, AnswerError for one that does not end well.
        """
        try:
            answer = self._pool.request(
                "GET",
                url,
                headers={**_HEADERS, **headers},
                timeout=wait,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
        except LocationParseError as error:
            raise UnreachableError("the address cannot be parsed") from error
        except HTTPError as error:
            raise UnreachableError(_plain(error, wait)) from error
        try:
            body = self._bounded(what, answer, self._monotonic() + wait)
            return Reply(answer.status, answer.headers, body)
        except HTTPError as error:
            raise AnswerError(f"{what} broke off: {_plain(error, wait)}") from error
        finally:
            answer.close()  # keeps the connection when the body was read to its end

    def _bounded(self, what: str, answer: urllib3.BaseHTTPResponse, give_up: float) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while chunk := answer.read1(1 << 16):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise AnswerError(f"{what} sent more than {MAX_BODY_BYTES >> 20} MiB")
            if self._monotonic() > give_up:
                raise AnswerError(f"{what} did not finish its answer in time")
        return b"".join(chunks)


def _plain(error: HTTPError, wait: float) -> str:
    """urllib3's wording, which names objects by address, → words for people."""
    said = str(error)
    if "timed out" in said.lower():
        return f"no answer within {wait:.1f} s"
    for words in _FAILURES:
        if words in said:
            return words[0].lower() + words[1:]
    return type(error).__name__.removesuffix("Error").removesuffix("Exception").lower() + " error"
