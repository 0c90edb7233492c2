# SPDX-License-Identifier: Apache-2.0
"""A server on loopback that answers as an agent would, from a table."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextlib.contextmanager
def answering(answer: Callable[[str], Any], port: int = 0) -> Iterator[str]:
    """Its address while it serves `answer(path with query)` as JSON; None is told as 404. `port` 0: a free
    one.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answer(self.path)
            problem = {"error": {"message": "no such snapshot", "remedy": "list them"}}
            body = json.dumps(problem if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        serving.join(5)
        server.server_close()
