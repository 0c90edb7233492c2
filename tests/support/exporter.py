# SPDX-License-Identifier: Apache-2.0
"""A `/metrics` endpoint whose text a test writes: hosts for Prometheus and VictoriaMetrics to scrape."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Exporter:
    """`text()` is asked for each scrape."""

    def __init__(self, text: Callable[[], str]) -> None:
        self.text = text
        self.scrapes = 0
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                exporter.scrapes += 1
                raw = exporter.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.target = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Connections are refused from here on."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def exporting(text: Callable[[], str]) -> Iterator[Exporter]:
    made = Exporter(text)
    try:
        yield made
    finally:
        made.stop()
