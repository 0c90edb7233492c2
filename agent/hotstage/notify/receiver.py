# SPDX-License-Identifier: Apache-2.0
"""A small webhook receiver that verifies what comes: for the demo, for trying a destination, and for tests.

    python -m hotstage.notify.receiver --port 0 --secret-file F [--bearer-file F] [--log FILE]

Signed webhooks are checked against the secret. With a bearer token it takes Alertmanager's v4 webhooks too,
which carry no signature: one delivery for each alert. Its first line on standard output is
`{"event":"listening","port":…}`, then one line a delivery.
"""

from __future__ import annotations

import argparse
import hmac
import http.server
import json
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO, cast

from hotstage.clock import SystemClock
from hotstage.errors import ConfigError, HotstageError
from hotstage.notify.signing import Secret, parse_secrets, verify

MAX_BODY_BYTES = 1 << 20
MIN_BEARER_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event. `latency_seconds` is from the event's creation to here, None where the body does not say.

    `is_replayed`: its id came before, as a retry or a copy; a receiver acts on the first only. Of an alert,
    `type` is `alert.firing` or `alert.resolved`, `subject` its name, `id` its fingerprint, start and status.
    """

    id: str
    type: str
    subject: str
    verified: bool
    error: str | None
    is_replayed: bool
    received_ns: int
    latency_seconds: float | None
    answered: int


Answer = Callable[[Delivery, int], int]
"""(delivery, how many came before it) → the status to answer; for tests of what senders do then."""


class Receiver:
    """Listens on loopback from construction, serves from `start` to `stop`."""

    def __init__(
        self,
        secrets: Sequence[Secret],
        *,
        port: int = 0,
        log: Sequence[TextIO] = (),
        answer: Answer | None = None,
        bearer: str | None = None,
    ) -> None:
        self.deliveries: list[Delivery] = []
        self._secrets = secrets
        self._bearer = bearer
        self._log = log
        self._answer = answer or _accept_genuine
        self._seen: set[str] = set()
        self._lock = threading.Lock()
        self._clock = SystemClock()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        # `stop` waits for the connections that are being served.
        self._server.daemon_threads = False
        cast("Any", self._server).receiver = self
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2)

    def received(self, sent: dict[str, str], body: bytes) -> int:
        """Check, remember and log one delivery; the status to answer. Header names are lower case."""
        now_ns = self._clock.wall_ns()
        if self._bearer is not None and "webhook-id" not in sent:
            return self._received_alerts(sent, body, now_ns)
        error = verify(self._secrets, sent, body, now_ns // 1_000_000_000)
        event = _parsed(body)
        with self._lock:
            message_id = sent.get("webhook-id", "")
            delivery = Delivery(
                id=message_id,
                type=str(event.get("type", "")),
                subject=str(event.get("subject", "")),
                verified=error is None,
                error=error,
                is_replayed=message_id in self._seen,
                received_ns=now_ns,
                latency_seconds=_latency(event, now_ns),
                answered=0,
            )
            status = self._answer(delivery, len(self.deliveries))
            self._keep(replace(delivery, answered=status))
        return status

    def _received_alerts(self, sent: dict[str, str], body: bytes, now_ns: int) -> int:
        """Alertmanager's body: every alert of it, or one refused delivery."""
        wanted, got = f"Bearer {self._bearer}".encode(), sent.get("authorization", "").encode()
        found = _parsed(body)
        alerts = found.get("alerts") if found.get("version") == "4" else None
        refused = Delivery("", "alert", "", False, None, False, now_ns, None, 0)
        with self._lock:
            if not hmac.compare_digest(wanted, got):
                self._keep(replace(refused, error="the bearer token is missing or another one", answered=401))
                return 401
            if not isinstance(alerts, list) or not all(map(_is_alert, alerts)):
                self._keep(replace(refused, error="not an Alertmanager v4 body", answered=400))
                return 400
            for alert in alerts:
                status, labels = alert["status"], alert["labels"]
                alert_id = f"{alert['fingerprint']} {alert['startsAt']} {status}"
                self._keep(
                    Delivery(
                        id=alert_id,
                        type=f"alert.{status}",
                        subject=str(labels.get("alertname", "")),
                        verified=True,
                        error=None,
                        is_replayed=alert_id in self._seen,
                        received_ns=now_ns,
                        latency_seconds=None,
                        answered=200,
                    )
                )
        return 200

    def _keep(self, delivery: Delivery) -> None:
        """Remember and log it; its caller holds the lock."""
        if delivery.verified and delivery.answered < 300:
            self._seen.add(delivery.id)
        self.deliveries.append(delivery)
        for log in self._log:
            print(json.dumps({"event": "delivery", **asdict(delivery)}), file=log, flush=True)

    def totals(self) -> dict[str, int]:
        """Distinct events that were verified and accepted, and deliveries that were not genuine."""
        with self._lock:
            return {
                "received": len(self.deliveries),
                "verified": len(self._seen),
                "rejected": sum(not delivery.verified for delivery in self.deliveries),
            }


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "hotstage-receiver"
    timeout = 5

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or len(length) > 9 or int(length) > MAX_BODY_BYTES:
            self._respond(413, {"error": "a body of at most 1 MiB with its length, please"})
            return
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            # The sender has gone in the middle of it: no delivery, neither a genuine nor a forged one.
            self.close_connection = True
            return
        sent = {name.lower(): value for name, value in self.headers.items()}
        status = cast("Any", self.server).receiver.received(sent, body)
        self._respond(status, {})

    def do_GET(self) -> None:
        self._respond(200, cast("Any", self.server).receiver.totals())

    def _respond(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Deliveries are logged by `Receiver`."""


def _accept_genuine(delivery: Delivery, before: int) -> int:
    return 200 if delivery.verified else 401


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        event = json.loads(body)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _is_alert(alert: Any) -> bool:
    """Whether it has the fields that are read."""
    return (
        isinstance(alert, dict)
        and isinstance(alert.get("labels"), dict)
        and all(isinstance(alert.get(name), str) for name in ("status", "fingerprint", "startsAt"))
    )


def _latency(event: dict[str, Any], now_ns: int) -> float | None:
    created = event.get("createdns", event.get("time_ns"))
    try:
        return (now_ns - int(created)) / 1e9  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _secrets_in(path: Path | None) -> tuple[Secret, ...]:
    return () if path is None else parse_secrets(path.read_text(), str(path))


def _bearer_in(path: Path | None) -> str | None:
    """The token, without the end of its line. Raises ConfigError for one that anybody could guess."""
    if path is None:
        return None
    token = path.read_text().strip()
    if len(token) < MIN_BEARER_CHARACTERS or not token.isascii():
        raise ConfigError(f"{path}: not a bearer token", remedy="`openssl rand -hex 32` makes one")
    return token


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m hotstage.notify.receiver", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--secret-file", type=Path, help="file with whsec_… lines")
    parser.add_argument("--bearer-file", type=Path, help="file with the token that Alertmanager sends")
    parser.add_argument("--log", type=Path, help="also append one JSON line a delivery to this file")
    options = parser.parse_args(arguments)
    if options.secret_file is None and options.bearer_file is None:
        parser.error("--secret-file or --bearer-file: a receiver that checks nothing is no use")
    try:
        secrets, bearer = _secrets_in(options.secret_file), _bearer_in(options.bearer_file)
    except (HotstageError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    files = [options.log.open("a")] if options.log else []
    receiver = Receiver(secrets, port=options.port, log=[sys.stdout, *files], bearer=bearer)
    print(json.dumps({"event": "listening", "port": receiver.port}), flush=True)
    receiver.start()
    signal.sigwait(ends)
    receiver.stop()
    for file in files:
        file.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
