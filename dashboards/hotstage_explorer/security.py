# SPDX-License-Identifier: Apache-2.0
"""Who may talk to this server, and what a page of it may do.

Host check against DNS rebinding, same-origin callbacks, response headers. No page needs anything from another
host, so the policy allows nothing from one.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from flask import Flask, Response, abort, request

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}


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


def guard(server: Flask, policy: str, names: frozenset[str]) -> None:
    """Check every request and sign every answer of `server`."""

    @server.before_request
    def _check() -> None:
        if not is_allowed(request.host, names):
            abort(Response("This server does not answer to that name.\n", 421, mimetype="text/plain"))
        origin = request.headers.get("Origin")
        if request.method == "POST" and origin is not None and urlsplit(origin).netloc != request.host:
            abort(Response("Another site's page may not ask this server.\n", 403, mimetype="text/plain"))

    @server.after_request
    def _sign(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers.update(_HEADERS)
        if response.mimetype in ("text/html", "application/json"):
            response.headers["Cache-Control"] = "no-store"
        return response
