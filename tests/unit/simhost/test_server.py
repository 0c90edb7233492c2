# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.request
from http.server import ThreadingHTTPServer

from hotstage.simhost.faults import parse_spec
from hotstage.simhost.server import HealthHandler, ServerConfig


def test_the_configuration_survives_its_file(tmp_path):
    config = ServerConfig(
        instance="i-1",
        index=1,
        instances=2,
        model="m",
        seed=3,
        library="/lib/x.so",
        report="/tmp/report",
        host_pid=12,
        tag="c",
        calls_scale=1.5,
        seconds=None,
        faults=(parse_spec("encoder-stall@1-2"), parse_spec("idle")),
    )
    config.write(tmp_path / "config.json")
    assert ServerConfig.read(tmp_path / "config.json") == config


def test_the_health_port_says_ok():
    server = ThreadingHTTPServer(("127.0.0.1", 0), HealthHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{server.server_address[1]}/health", timeout=5
        ) as answer:
            assert (answer.status, answer.read()) == (200, b'{"status":"ok"}\n')
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_child_whose_parent_has_gone_does_not_start():
    program = "import sys; from hotstage.simhost.server import die_with; die_with(int(sys.argv[1])); print(1)"
    alive = subprocess.run(
        [sys.executable, "-c", program, str(os.getpid())], capture_output=True, timeout=20, check=False
    )
    orphan = subprocess.run(
        [sys.executable, "-c", program, "1"], capture_output=True, timeout=20, check=False
    )
    assert (alive.returncode, alive.stdout) == (0, b"1\n")
    assert (orphan.returncode, orphan.stdout) == (1, b"")
