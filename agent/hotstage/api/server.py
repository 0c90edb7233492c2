# SPDX-License-Identifier: Apache-2.0
"""The listeners: TCP and a Unix socket, bounded threads, a clean end. It knows no route."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import socketserver
import stat
import threading
from pathlib import Path
from typing import Any

from hotstage.api.access import Access, group_id
from hotstage.api.connection import Answer, Connection
from hotstage.api.handshakes import Handshakes
from hotstage.api.message import ApiError
from hotstage.config.settings import HttpConfig
from hotstage.errors import ConfigError, PreflightError

log = logging.getLogger(__name__)

_BUSY = ApiError(
    503, "too_many_connections", "all connections are in use", "try again, or close some"
).response()
_BUSY_BYTES = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_BUSY.body), _BUSY.body)
)
_DISPLACE_SECONDS = 0.2
"""For the thread of a connection that was ended to see it."""


class _Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """One listening socket; each connection has a thread while there are places. When there are none, a
    newcomer gets the place of whoever has kept us waiting longest, for a request or with taking its answer;
    where nobody does, a 503.
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, listening: socket.socket, access: Access, answer: Answer, config: HttpConfig) -> None:
        self.access = access
        self.answer = answer
        self.timeout_seconds = config.timeout_seconds
        self._places = threading.BoundedSemaphore(config.max_connections)
        self._open: set[socket.socket] = set()
        self._waiting: dict[socket.socket, None] = {}
        """Connections that wait for their peers, the longest first."""
        self._lock = threading.Lock()
        self._closing = threading.Event()
        # Never bound by the base class: the socket comes bound and listening.
        super().__init__(("", 0), Connection, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self._handshakes: Handshakes | None = None
        if access.tls is not None and listening.family != socket.AF_UNIX:
            self._handshakes = Handshakes(access.tls, config.max_connections, config.timeout_seconds)
        self.threadless = 0
        """Connections that were closed because no thread could be had."""
        self.displaced = 0
        """Connections that were ended for a newcomer."""

    def accept_until_closed(self) -> None:
        """One thread's work. It waits in `accept` alone, so an idle API costs nothing."""
        while not self._closing.is_set():
            try:
                request, client_address = self.get_request()
            except OSError:
                # Out of descriptors, or a peer that left while waiting: neither may spin or end the listener.
                self._closing.wait(0.05)
                continue
            self.process_request(request, client_address)

    def close(self) -> None:
        """Accept no more, and end every connection; their threads see the end of the line."""
        self._closing.set()
        with contextlib.suppress(OSError):
            # Wakes `accept`, which closing the descriptor would not.
            self.socket.shutdown(socket.SHUT_RDWR)
        with self._lock:
            still_open = list(self._open)
        for connection in still_open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False) and not self._displace():
            self._turn_away(request)
            return
        with self._lock:
            self._open.add(request)
        try:
            super().process_request(request, client_address)
        except (RuntimeError, MemoryError) as error:  # RLIMIT_NPROC or TasksMax is reached, for now
            self.threadless += 1
            if self.threadless == 1:
                log.warning("no thread for a connection, it is closed", extra={"reason": str(error)})
            self._turn_away(request)
            self._leave(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        spoken = request
        try:
            if self._handshakes is not None:
                spoken = self._secured(request, str(client_address[0]), self._handshakes)
            super().process_request_thread(spoken, client_address)
        except OSError:
            # Whoever speaks no TLS, or not in time; `close` leaves nothing of it behind.
            self.shutdown_request(spoken)
        finally:
            self._leave(request, spoken)

    def waits(self, connection: socket.socket) -> None:
        """From now on its peer has the next move."""
        with self._lock:
            self._waiting.pop(connection, None)
            self._waiting[connection] = None

    def works(self, connection: socket.socket) -> None:
        """From now on the next move is ours."""
        with self._lock:
            self._waiting.pop(connection, None)

    def _displace(self) -> bool:
        """Whether the end of another connection has made a place."""
        with self._lock:
            longest = next(iter(self._waiting), None)
            if longest is None:
                return False
            del self._waiting[longest]
            self.displaced += 1
        with contextlib.suppress(OSError):
            # Its thread sees the end of the line. The plain verb: TLS would first say good-bye.
            socket.socket.shutdown(longest, socket.SHUT_RDWR)
        return self._places.acquire(timeout=_DISPLACE_SECONDS)

    def _turn_away(self, request: socket.socket) -> None:
        """Say that we are busy, where that takes no handshake: it would cost a peer's patience."""
        if self._handshakes is None:
            with contextlib.suppress(OSError):
                request.settimeout(0.1)
                request.sendall(_BUSY_BYTES)
        self.shutdown_request(request)

    def _leave(self, *ended: socket.socket) -> None:
        with self._lock:
            self._open.difference_update(ended)
            for connection in ended:
                self._waiting.pop(connection, None)
        self._places.release()

    def _secured(self, request: socket.socket, address: str, handshakes: Handshakes) -> socket.socket:
        """The connection after its handshake."""
        secured = handshakes.wrap(request, address)
        with self._lock:  # the plain socket has handed its descriptor over
            self._open = self._open - {request} | {secured}
        try:
            handshakes.complete(secured, address)
        except OSError:
            secured.close()
            raise
        secured.settimeout(self.timeout_seconds)
        return secured

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that vanished is no news; `Connection` logs what is ours."""


class ApiServer:
    """Serves `answer` at the configured address and socket from `start` to `stop`.

    The constructor binds, so that a port in use is known before anything else runs. Raises PreflightError.
    """

    def __init__(self, config: HttpConfig, answer: Answer) -> None:
        access = Access.of(config)
        self._socket_path = Path(config.socket)
        tcp = _listen_tcp(access)
        self.port: int = tcp.getsockname()[1]
        try:
            unix = _listen_unix(self._socket_path, config.socket_group)
        except BaseException:
            tcp.close()
            raise
        self._listeners = [_Listener(each, access, answer, config) for each in (tcp, unix)]
        self._threads: list[threading.Thread] = []

    @property
    def threadless(self) -> int:
        """Connections that were closed because no thread could be had."""
        return sum(listener.threadless for listener in self._listeners)

    def start(self) -> None:
        for listener in self._listeners:
            thread = threading.Thread(target=listener.accept_until_closed, name="hotstage-api", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Accept no more, end what is open, take the socket file away."""
        for listener in self._listeners:
            listener.close()
        for thread in self._threads:
            thread.join(2)
        for listener in self._listeners:
            listener.server_close()
        self._socket_path.unlink(missing_ok=True)


def _listen_tcp(access: Access) -> socket.socket:
    family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((access.host, access.port))
        listening.listen(64)
    except OSError as error:
        listening.close()
        used = error.errno == errno.EADDRINUSE
        raise PreflightError(
            f"cannot listen on {access.host}:{access.port}: {error.strerror or error}",
            remedy="another agent may be running; stop it or set http.listen" if used else "set http.listen",
        ) from error
    return listening


def _listen_unix(path: Path, group: str | None) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _remove_dead_socket(path)
        # Closed to everyone until its group is set.
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        if group is not None:
            os.chown(path, -1, group_id(group))
            path.chmod(0o660)
        listening.listen(64)
    except ConfigError:
        listening.close()
        raise
    except OSError as error:
        listening.close()
        raise PreflightError(
            f"cannot listen on {path}: {error.strerror or error}",
            remedy="another agent may be running; stop it or set http.socket",
        ) from error
    return listening


def _remove_dead_socket(path: Path) -> None:
    """A socket that nobody serves any more is left by an agent that was killed.

    Raises OSError if one answers.
    """
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(errno.EEXIST, "it is no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
