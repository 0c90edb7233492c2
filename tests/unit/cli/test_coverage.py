# SPDX-License-Identifier: Apache-2.0
"""`hotstage coverage` tells of each loss what it means and what helps."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

from hotstage.cli.coverage import coverage
from hotstage.probes.losses import MEANINGS


def answer(losses: Mapping[str, int]) -> dict[str, object]:
    return {
        "loader": "libbpf",
        "rung": "S",
        "attached": 9,
        "calls": {"counted": 5, "open": 0, "lost": 0},
        "processes": [],
        "missed": [{"symbol": "cuFoo", "reason": "not in this library", "library": "/lib/libcuda.so"}],
        "losses": losses,
    }


@pytest.fixture
def said() -> Iterator[Callable[..., list[str]]]:
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(bodies[-1])))
            self.end_headers()
            self.wfile.write(bodies[-1])

        def log_message(self, format: str, *values: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def said_(**losses: int) -> list[str]:
        bodies.append(json.dumps(answer(losses)).encode())
        done = CliRunner().invoke(coverage, ["--agent", f"http://127.0.0.1:{server.server_port}"])
        assert done.exit_code == 0, done.output
        return done.output.splitlines()

    yield said_
    server.shutdown()
    server.server_close()


def test_what_was_lost_is_told_with_meaning_and_remedy(said) -> None:
    lines = said(missed_request=25, lost_threads=0)
    told = MEANINGS["missed_request"]
    at = lines.index(f"missed_request: {told.means}")
    assert lines[at + 1 : at + 3] == [f"  may falsify: {told.falsifies}", f"  remedy: {told.helps}"]
    assert not any("lost_threads" in line for line in lines)


def test_a_loss_of_another_version_is_told_as_unknown(said) -> None:
    assert any(
        line.startswith("lost_elsewhere: a loss that this version does not know")
        for line in said(lost_elsewhere=1)
    )


def test_paths_stand_under_a_header_that_says_so(said) -> None:
    lines = said()
    at = lines.index("why not probed\tsymbols\twhich\tlibrary")
    assert lines[at + 1] == "not in this library\t1\tcuFoo\t/lib/libcuda.so"
