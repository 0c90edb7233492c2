# SPDX-License-Identifier: Apache-2.0
"""Tells the service manager that the explorer is ready and alive, by asking its own server as a browser does.

A thread that waits proves nothing about the workers, so each beat follows a real answer. It never judges the
agent or the Prometheus behind the page: a restart would not mend those.
"""

from __future__ import annotations

import http.client
import threading

from hotstage.service import NoManager, ServiceManager

ANSWER_SECONDS = 5.0
_START_PAUSE_SECONDS = 0.1
_ASK_SECONDS = 10.0
"""Between two questions where no shorter deadline is set."""


class Lifeline:
    """`start` before the server runs, `stop` when it ends."""

    def __init__(self, service: ServiceManager, host: str, port: int, status: str) -> None:
        """`host` as it was bound: of an address that stands for all, this machine's own is asked."""
        self._service = service
        self._host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - asked, not bound
        self._port = port
        self._status = status
        self._pause = min(_ASK_SECONDS, (service.watchdog_seconds or _ASK_SECONDS * 3) / 3)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="explorer-lifeline", daemon=True)

    def start(self) -> None:
        """Asks only where somebody listens to the answers."""
        if not isinstance(self._service, NoManager):
            self._thread.start()

    def stop(self) -> None:
        """Say that the end has begun, and ask no more."""
        self._stopping.set()
        self._service.stopping()

    def answers(self) -> bool:
        """Whether `/healthz` was answered with 200 in time."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_SECONDS)
        try:
            connection.request("GET", "/healthz", headers={"Connection": "close"})
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _run(self) -> None:
        is_ready = False
        while not self._stopping.is_set():
            if self.answers():
                if not is_ready:
                    is_ready = True
                    self._service.ready(self._status)
                self._service.beat()
            self._stopping.wait(self._pause if is_ready else _START_PAUSE_SECONDS)
