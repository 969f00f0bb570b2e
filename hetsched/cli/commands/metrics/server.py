"""`hetsched metrics --serve`: HTTP for Prometheus, on loopback or a unix socket only.

Each scrape asks the daemon; without one, `hetsched_up` is 0.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import socketserver
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIEnvironment

from hetsched.cli.connect import control
from hetsched.cli.output.terminal import clean, note
from hetsched.errors import CantCreate, HetschedError, UsageError
from hetsched.units import quoted

SECONDS = 10.0
"""Time for a scraper to send its request and read the answer, and for the daemon to answer."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HEAD = "# HELP hetsched_up 1 if the daemon answers.\n# TYPE hetsched_up gauge\n"
LOOPBACK = "127.0.0.1:9469, [::1]:9469, localhost:9469 or unix:PATH"


def serve(address: str) -> None:
    """Serve until interrupted.

    Raises
    ------
    UsageError
        The address isn't loopback or a unix socket.
    CantCreate
        The address is in use or not permitted.
    """
    family, place = parse_address(address)
    try:
        server = _SERVERS[family](place, _QuietHandler)
    except OSError as error:
        raise CantCreate(f"--serve {address}: {error.strerror}") from None
    with server:
        server.set_app(_answer)
        note(f"serving metrics at {clean(address)}")
        try:
            server.serve_forever()
        finally:
            if family == socket.AF_UNIX:
                Path(str(place)).unlink(missing_ok=True)


def parse_address(address: str) -> tuple[int, Any]:
    """Return the socket family and the address for `bind`.

    Raises
    ------
    UsageError
        Neither loopback nor a unix socket.
    """
    if address.startswith("unix:") and len(address) > len("unix:"):
        return socket.AF_UNIX, address.removeprefix("unix:")
    host, colon, port = address.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.strip("[]")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--serve {quoted(address)}: not an address; give {LOOPBACK}")
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        raise UsageError(f"--serve {quoted(address)}: not an address; give {LOOPBACK}") from None
    if not ip.is_loopback:
        raise UsageError(
            f"--serve {quoted(address)}: metrics are served to this machine only; give {LOOPBACK}"
        )
    return (socket.AF_INET6 if ip.version == 6 else socket.AF_INET), (str(ip), int(port))


def _answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    try:
        with control() as daemon:
            up, text = 1, daemon.metrics()
    except HetschedError:
        up, text = 0, ""
    start_response("200 OK", [("Content-Type", CONTENT_TYPE)])
    return [f"{HEAD}hetsched_up {up}.0\n{text}".encode()]


class _QuietHandler(WSGIRequestHandler):
    """Logs nothing, and limits how long a client may take."""

    timeout = SECONDS

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: there is a scrape every few seconds."""

    def address_string(self) -> str:
        return "local"

    def get_environ(self) -> Any:
        # A unix socket's peer has no address.
        if not isinstance(self.client_address, tuple):
            self.client_address = ("local", 0)
        return super().get_environ()


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """One thread per scrape: a scraper that stalls doesn't stop the others."""

    daemon_threads = True

    def server_bind(self) -> None:
        """Bind without a look-up of the host's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", 0
        self.setup_environ()


class _Ipv6Server(_Server):
    """On ::1."""

    address_family = socket.AF_INET6


class _UnixServer(_Server):
    """On a unix socket of mode 0600; a stale one is replaced."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        path = Path(str(self.server_address))
        if _is_stale(path):
            path.unlink()
        mask = os.umask(0o177)
        try:
            super().server_bind()
        finally:
            os.umask(mask)


_SERVERS: dict[int, type[_Server]] = {
    socket.AF_INET: _Server,
    socket.AF_INET6: _Ipv6Server,
    socket.AF_UNIX: _UnixServer,
}


def _is_stale(path: Path) -> bool:
    """Return whether `path` is a socket on which nobody listens."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(SECONDS)
            probe.connect(str(path))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
