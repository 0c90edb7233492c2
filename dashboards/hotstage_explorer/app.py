# SPDX-License-Identifier: Apache-2.0
"""The explorer as a program: a Dash application over one source, served by waitress. Needs no privilege."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from types import FrameType
from typing import Any

import waitress
from dash import Dash
from flask import Flask, jsonify, redirect

from hotstage.service import service_manager
from hotstage_explorer import library
from hotstage_explorer.components.notices import freshness
from hotstage_explorer.desk import Desk
from hotstage_explorer.feed import Feed
from hotstage_explorer.lifeline import Lifeline
from hotstage_explorer.pages import classes, heat, live, requests, snapshots, stages
from hotstage_explorer.security import content_policy, guard, own_names
from hotstage_explorer.sources.base import Source

SLOW_PEER_SECONDS = 15
"""A connection that says nothing for this long makes room for others."""

_INDEX = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}
LIBRARY</head>
<body>
{%app_entry%}
<noscript><p class="nothing">This page needs JavaScript; the agent's HTTP API does not.</p></noscript>
<footer hidden>{%config%}{%scripts%}{%renderer%}</footer>
</body>
</html>"""

# Dash's renderer fetches the library itself where it draws; on the other pages nothing but ours does.
_HEAT_LIBRARY = f'<link rel="preload" as="script" href="{library.SCENES.path}">'
_LIVE_LIBRARY = f'<script defer src="{library.BARS.path}"></script>'

LIVE_PAGES = (requests.PAGE, stages.PAGE, snapshots.PAGE, classes.PAGE)


def create_app(source: Source, *, listen_host: str = "127.0.0.1") -> Dash:
    """A ready application that reads `source`; it answers to `listen_host` besides this machine's names.

    Each page is a Dash application of its own on one server, so that none waits for another's parts; the
    first one is returned. Their readers are `app.server.extensions["feed"]` and `["desk"]`, to be closed by
    whoever serves the application.
    """
    feed, desk = Feed(source), Desk(source)
    app = _dash("Heat", "/", _HEAT_LIBRARY)
    app.server.extensions.update(feed=feed, desk=desk)
    app.layout = lambda: heat.layout(feed)
    heat.register(app, feed)
    apps = [app, *(_add_page(app.server, page, feed, desk) for page in LIVE_PAGES)]
    hashes = {each for made in apps for each in made.csp_hashes()}
    callbacks = {
        output: (len(wired["inputs"]), len(wired["state"]))
        for made in apps
        for output, wired in made.callback_map.items()
    }

    def healthz() -> Any:
        """This process answers; what it knows of its source is beside it and never makes it unhealthy."""
        picture, now = feed.peek(), time.monotonic()
        source = {
            "name": picture.origin.name,
            "address": feed.address,
            "state": freshness(picture, now),
            "age_seconds": picture.age_seconds(now),
        }
        return jsonify({"status": "ok", "source": source})

    app.server.add_url_rule("/healthz", view_func=healthz)
    library.serve_library(app.server)
    guard(app.server, content_policy(sorted(hashes)), own_names(listen_host), callbacks)
    return app


def _add_page(server: Flask, page: live.Page, feed: Feed, desk: Desk) -> Dash:
    """Put a page on `server`."""
    app = _dash(page.title, page.path, _LIVE_LIBRARY, server)
    app.layout = lambda: live.layout(page)
    live.register(app, feed, desk, page)
    server.add_url_rule(
        page.path.rstrip("/"), endpoint=f"to-{page.key}", view_func=lambda: redirect(page.path)
    )
    return app


def _dash(title: str, path: str, head: str, server: Flask | bool = True) -> Dash:
    return Dash(
        "hotstage_explorer",
        server=server,
        url_base_pathname=path,
        assets_folder="assets",
        index_string=_INDEX.replace("LIBRARY", head),
        title=f"{title} · hotstage",
        update_title=None,
        serve_locally=True,
        enable_mcp=False,
        add_log_handler=False,
        meta_tags=[{"name": "color-scheme", "content": "dark"}],
    )


def serve(listen_host: str, port: int, source: Source) -> int:
    """Serve until SIGTERM or SIGINT → 0; a port in use → 4. Port 0 is any free one."""
    try:
        family = socket.AF_INET6 if ":" in listen_host else socket.AF_INET
        listener = socket.create_server((listen_host, port), family=family)
    except OSError as error:
        print(
            f"hotstage explore: cannot listen on {listen_host}:{port}: {error.strerror or error}",
            file=sys.stderr,
        )
        print("Free the port, or choose another one with --listen HOST:PORT.", file=sys.stderr)
        return 4
    signal.signal(signal.SIGTERM, _stop)
    app = create_app(source, listen_host=listen_host)
    server = waitress.create_server(
        app.server,
        sockets=[listener],
        threads=8,
        ident="hotstage-explorer",
        max_request_body_size=1 << 20,
        channel_timeout=SLOW_PEER_SECONDS,
        cleanup_interval=5,
    )
    shown = f"[{listen_host}]" if ":" in listen_host else listen_host
    here = listener.getsockname()[1]
    print(f"explorer http://{shown}:{here}/ reads {source.address}", flush=True)
    status = f"http://{shown}:{here}/ reads {source.address}"
    lifeline = Lifeline(service_manager(os.environ), listen_host, here, status)
    lifeline.start()
    try:
        server.run()
    except (KeyboardInterrupt, SystemExit):
        pass
    finally:
        lifeline.stop()
        server.close()
        app.server.extensions["feed"].close()
        app.server.extensions["desk"].close()
    return 0


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
