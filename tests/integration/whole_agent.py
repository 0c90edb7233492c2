# SPDX-License-Identifier: Apache-2.0
"""The real agent as a process of its own, and its HTTP answers."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys

_UNGOVERNED = "[governor]\nenabled = false\n"  # a simulation spends its CPU on calls alone


class WholeAgent:
    """`hotstage agent` with everything it owns in one directory."""

    def __init__(self, directory, port, more=_UNGOVERNED):
        """`more`: tables of the configuration beside those that keep it to itself."""
        self.directory, self.port = directory, port
        directory.mkdir(exist_ok=True)
        config = directory / "config.toml"
        config.write_text(
            f'[store]\ndirectory = "{directory}/state"\n'
            f'[http]\nlisten = "127.0.0.1:{port}"\nsocket = "{directory}/agent.sock"\n'
            f'[page]\npath = "{directory}/breakers"\n'
            "[devices]\nenabled = false\n"
            f'[probes]\ncustom_directory = "{directory}/probes.d"\n'
            f"{more}"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hotstage", "--config", str(config), "agent"],
            stderr=subprocess.PIPE,
            text=True,
        )

    def get(self, path):
        """(status, body), or None while nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        except OSError:
            return None
        finally:
            connection.close()

    def is_ready(self):
        assert self.process.poll() is None, self.process.stderr.read()
        answer = self.get("/readyz")
        return answer is not None and answer[0] == 200

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        code = self.process.wait(20)
        return code, self.process.stderr.read()

    def order(self, state, reason):
        """Switch the probes; returns when it is done."""
        self.cli("probes", state, "--reason", reason)

    def cli(self, *words):
        """What a verb of the command line says of this agent."""
        command = [sys.executable, "-m", "hotstage", *words]
        socket_path = f"{self.directory}/agent.sock"
        return subprocess.run(
            [*command, "--socket", socket_path], check=True, capture_output=True, text=True, timeout=20
        ).stdout
