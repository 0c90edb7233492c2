# SPDX-License-Identifier: Apache-2.0
"""One try at one destination, and what its answer means. Keeps nothing and never raises."""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
import time
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from hotstage.notify import formats, signing
from hotstage.notify.db import HeldEvent
from hotstage.notify.destinations import RefusedAddressError, Target
from hotstage.notify.formats.context import Context
from hotstage.notify.post import PAUSING, Poster
from hotstage.text import plain_line

log = logging.getLogger(__name__)

_RETRIED = frozenset({408, 409, 425, 429})


@dataclass(frozen=True, slots=True)
class Message:
    """What is posted; `id` is the idempotency key, the same however often it is sent."""

    id: str
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one attempt led to. `wait_seconds` is what the receiver asked for.

    The rest tells people how it went: `address` None if no name was resolved, `seconds` None if nothing was
    sent, `status` None if nothing came back.
    """

    kind: Literal["delivered", "retry", "dead", "disable"]
    error: str | None = None
    wait_seconds: float | None = None
    remedy: str | None = field(default=None, compare=False)
    status: int | None = field(default=None, compare=False)
    seconds: float | None = field(default=None, compare=False)
    address: str | None = field(default=None, compare=False)


def judge(status: int, retry_after_seconds: float | None) -> Outcome:
    """What an answer means. A redirect is not followed: the operator's URL is the only place events go to."""
    if 200 <= status < 300:
        return Outcome("delivered")
    error = f"answered {status}"
    if status == 410:
        return Outcome("disable", "answered 410, it wants no more")
    if 300 <= status < 400:
        return Outcome("retry", f"{error}, redirects are not followed", remedy="set the final URL")
    if status in (401, 403):
        return Outcome("dead", error, remedy="check secret_file and authorization_file on both sides")
    if 400 <= status < 500 and status not in _RETRIED:
        return Outcome("dead", error)
    return Outcome("retry", error, retry_after_seconds if status in PAUSING else None)


def attempt(target: Target, event: HeldEvent, poster: Poster, context: Context) -> Outcome:
    """One try with one event by itself."""
    try:
        content_type, body = formats.render(target.format, event, context)
    except msgspec.DecodeError as error:
        return undecodable(error)
    return send(target, Message(event.id, content_type, body), poster, context.sent_ns)


def undecodable(error: msgspec.DecodeError) -> Outcome:
    """An event that no agent of ours wrote: it blocks nobody."""
    return Outcome("dead", plain_line(f"its body is not an event: {error}"))


def send(target: Target, message: Message, poster: Poster, now_wall_ns: int) -> Outcome:
    """Sign and post. It never raises: one message that we fail on must not end a destination's worker."""
    signed = signing.headers(target.secrets, message.id, now_wall_ns // 1_000_000_000, message.body)
    headers = {"Content-Type": message.content_type, **signed}
    if target.authorization is not None:
        headers["Authorization"] = target.authorization
    address = None
    began = time.monotonic()
    try:
        address = poster.resolve(target)
        reply = poster.post(target, headers, message.body, address)
    except RefusedAddressError as error:
        return Outcome("retry", str(error), remedy=error.remedy)
    except (OSError, http.client.HTTPException) as error:
        seconds = None if address is None else time.monotonic() - began
        return replace(_failure(error, target), seconds=seconds, address=address)
    except Exception as error:
        log.exception("an attempt failed", extra={"destination": target.name, "event_id": message.id})
        return Outcome("retry", f"internal: {type(error).__name__}")
    outcome = judge(reply.status, reply.retry_after_seconds)
    return replace(outcome, status=reply.status, seconds=time.monotonic() - began, address=address)


def _failure(error: OSError | http.client.HTTPException, target: Target) -> Outcome:
    """What kept a message from being sent or answered, in words that help. Some are the receiver's own: they
    go to the log, the database and the terminal from here.
    """
    told, remedy = f"{type(error).__name__}: {error}", None
    match error:
        case socket.gaierror():
            told = f"{target.host} cannot be resolved: {error.strerror}"
            remedy = "check the name, and this host's DNS"
        case ssl.SSLCertVerificationError():
            told = f"its certificate is not accepted: {error.verify_message}"
            remedy = f"it must be valid for {target.host} and of an authority that this host trusts"
        case ConnectionRefusedError():
            told, remedy = "the connection is refused", "is the receiver running, and the port right?"
        case TimeoutError():
            remedy = "is the receiver reachable from here, and does it answer at once?"
    return Outcome("retry", plain_line(told), remedy=remedy)
