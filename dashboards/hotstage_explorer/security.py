# SPDX-License-Identifier: Apache-2.0
"""Who may talk to this server, and what a page of it may do.

Host check against DNS rebinding, same-origin callbacks, response headers. No page needs anything from another
host, so the policy allows nothing from one.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from dash.exceptions import DashException
from flask import Flask, Response, abort, request

Callbacks = Mapping[str, tuple[int, int]]
"""Output of a callback → how many inputs and states it takes."""

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}


def _no_such_call() -> Response:
    return Response("No page of this server asks that.\n", 400, mimetype="text/plain")


def content_policy(script_hashes: Iterable[str]) -> str:
    """`script_hashes` name the one inline script that Dash starts with; plotly styles its SVG inline."""
    return "; ".join(
        (
            "default-src 'none'",
            " ".join(("script-src 'self'", *script_hashes)),
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "object-src 'none'",
        )
    )


def is_allowed(host_header: str, names: Iterable[str]) -> bool:
    """A Host header is fine when it is a literal address (rebinding needs a name) or one of `names`."""
    try:
        host = urlsplit(f"//{host_header}").hostname
    except ValueError:
        return False
    if not host or "@" in host_header:
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host.rstrip(".") in {name.lower() for name in names}
    return True


def own_names(listen_host: str) -> frozenset[str]:
    """The names under which people reach this server: localhost, what it listens on, this machine's name."""
    return frozenset({"localhost", listen_host, socket.gethostname()})


def is_own_origin(origin: str, host: str) -> bool:
    """Whether a page of this server asks, by the Origin that its browser sends."""
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def is_callback(raw: bytes, known: Callbacks) -> bool:
    """Whether a body calls one of the `known`, with as many values as it takes. Of another one Dash would log
    a traceback, and with it what the stranger sent.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    if not isinstance(body, dict) or not isinstance(body.get("output"), str):
        return False
    given = [body.get("inputs"), body.get("state", [])]
    if not all(isinstance(each, list) for each in given):
        return False
    return known.get(body["output"]) == tuple(map(len, given))


def guard(server: Flask, policy: str, names: frozenset[str], callbacks: Callbacks) -> None:
    """Check every request and sign every answer of `server`; it has these `callbacks` and no others."""

    @server.before_request
    def _check() -> None:
        if not is_allowed(request.host, names):
            abort(Response("This server does not answer to that name.\n", 421, mimetype="text/plain"))
        origin = request.headers.get("Origin")
        if request.method == "POST" and origin is not None and not is_own_origin(origin, request.host):
            abort(Response("Another site's page may not ask this server.\n", 403, mimetype="text/plain"))
        if request.method == "POST" and not is_callback(request.get_data(), callbacks):
            abort(_no_such_call())

    @server.errorhandler(DashException)
    def _refuse(error: DashException) -> Response:
        return _no_such_call()

    @server.after_request
    def _sign(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers.update(_HEADERS)
        if response.mimetype in ("text/html", "application/json"):
            response.headers["Cache-Control"] = "no-store"
        return response
