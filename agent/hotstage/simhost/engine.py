# SPDX-License-Identifier: Apache-2.0
"""A fake inference engine: serves `/metrics` of an engine model under an engine's own names, on loopback.

`python -m hotstage.simhost.engine --dialect vllm --seed 7` prints one JSON line with its URL and serves, in
real time, until its input closes. A test drives `EngineServer` by hand, in simulated time.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from hotstage.simhost.engine_model import EngineModel, EngineShape
from hotstage.simhost.engine_page import MODEL, Dialect, page

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class EngineServer:
    """Serves whatever the model says at the moment of asking; `advance` may be called meanwhile."""

    def __init__(self, engine: EngineModel, dialect: Dialect, model: str = MODEL, port: int = 0) -> None:
        self.engine = engine
        self.dialect = dialect
        self.model = model
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/metrics"

    def advance(self, seconds: float) -> None:
        with self._lock:
            self.engine.advance(seconds)

    def restart(self, engine: EngineModel) -> None:
        """The same place, another life: all counts begin anew."""
        with self._lock:
            self.engine = engine

    def page(self) -> bytes:
        with self._lock:
            return page(self.engine, self.dialect, self.model).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(server: EngineServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            is_page = self.path == "/metrics"
            body = server.page() if is_page else b"not found\n"
            self.send_response(200 if is_page else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(description="A fake inference engine with known numbers.")
    parser.add_argument("--dialect", choices=[each.value for each in Dialect], default=Dialect.vllm.value)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--rate", type=float, default=EngineShape().requests_per_second, help="requests a second"
    )
    parser.add_argument("--model", default=MODEL)
    given = parser.parse_args()
    shape = replace(EngineShape(), requests_per_second=given.rate)
    server = EngineServer(EngineModel(given.seed, shape), Dialect(given.dialect), given.model, given.port)
    print(json.dumps({"event": "engine", "url": server.url, "dialect": given.dialect}), flush=True)
    ended = threading.Event()
    threading.Thread(target=_until_closed, args=(ended,), daemon=True).start()
    before = time.monotonic()
    while not ended.wait(0.1):
        now = time.monotonic()
        server.advance(now - before)
        before = now
    server.close()


def _until_closed(ended: threading.Event) -> None:
    while sys.stdin.readline():
        pass
    ended.set()


if __name__ == "__main__":
    main()
