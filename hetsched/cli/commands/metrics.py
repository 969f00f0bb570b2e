"""`hetsched metrics`: the daemon's counters and gauges, as Prometheus reads them.

`--serve` is on loopback or a unix socket only. Each scrape asks the daemon; without one,
`hetsched_up` is 0.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import socketserver
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hetsched.cli.flags import Json, option
from hetsched.cli.terminal import answer, note
from hetsched.client.control import Control
from hetsched.errors import CantCreate, HetschedError, UsageError
from hetsched.units import quoted

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SECONDS = 10.0
"""Time for a scraper to send its request and read the answer, and for the daemon to answer."""
LOOPBACK = "127.0.0.1:9469, [::1]:9469, localhost:9469 or unix:PATH"


def parse_address(text: str) -> tuple[int, Any]:
    """Return the socket family and the address for `bind`.

    Raises UsageError: neither loopback nor a unix socket.
    """
    if text.startswith("unix:") and len(text) > len("unix:"):
        return socket.AF_UNIX, text.removeprefix("unix:")
    host, _, port = text.rpartition(":")
    try:
        ip = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
        if not port.isdecimal() or int(port) > 65535:
            raise ValueError
    except ValueError:
        raise UsageError(f"{quoted(text)}: not an address; give {LOOPBACK}") from None
    if not ip.is_loopback:
        raise UsageError(
            f"{quoted(text)}: metrics are served to this machine only; give {LOOPBACK}"
        )
    return (socket.AF_INET6 if ip.version == 6 else socket.AF_INET), (str(ip), int(port))


Address = Annotated[
    Any | None,
    option(
        "HOST:PORT|unix:PATH",
        "Serve them by HTTP on this machine.",
        lambda text: (text, *parse_address(text)),
        "--serve",
    ),
]


def metrics(address: Address = None, json: Json = False) -> None:
    if address is not None:
        if json:
            raise UsageError("--json and --serve exclude each other")
        _serve(*address)
        return
    with Control() as daemon:
        text = daemon.metrics()
    records = _records(text) if json else []
    answer(json, "metrics/1", {"metrics": records}, text.splitlines())


def _records(text: str) -> list[dict[str, Any]]:
    from prometheus_client.parser import text_string_to_metric_families

    records = []
    for family in text_string_to_metric_families(text):
        about = {"name": family.name, "kind": family.type, "help": family.documentation}
        samples = [
            {"value": s.value, "labels": s.labels, "suffix": s.name.removeprefix(family.name)}
            for s in family.samples
        ]
        records.append({**about, "samples": samples})
    return records


class _Scrape:
    """A collector of prometheus_client that asks the daemon."""

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily
        from prometheus_client.parser import text_string_to_metric_families

        up, text = 0, ""
        with contextlib.suppress(HetschedError), Control(timeout=SECONDS, reconnect=0) as daemon:
            up, text = 1, daemon.metrics()
        yield GaugeMetricFamily("hetsched_up", "1 if the daemon answers.", value=up)
        yield from text_string_to_metric_families(text)


def _serve(text: str, family: int, place: Any) -> None:
    """Serve at `text`, the address `place` of `family`, until interrupted. Raises CantCreate."""
    from prometheus_client.exposition import MetricsHandler

    settings = {"registry": _Scrape(), "timeout": SECONDS}
    handler = type("Handler", (MetricsHandler,), settings)
    try:
        server = type("Server", (_Server,), {"address_family": family})(place, handler)
    except OSError as error:
        raise CantCreate(f"--serve {text}: {error.strerror}") from None
    with server:
        note(f"serving metrics at {text}")
        try:
            server.serve_forever()
        finally:
            if family == socket.AF_UNIX:
                Path(place).unlink(missing_ok=True)


class _Server(socketserver.ThreadingTCPServer):
    """One thread per scrape: a scraper that stalls doesn't stop the others.

    A unix socket has mode 0600; a stale one is replaced.
    """

    daemon_threads = True
    allow_reuse_address = True

    def server_bind(self) -> None:
        is_unix = self.address_family == socket.AF_UNIX
        if is_unix and Path(path := str(self.server_address)).is_socket():
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(path) == errno.ECONNREFUSED:
                    Path(path).unlink()
        mask = os.umask(0o177) if is_unix else 0
        try:
            super().server_bind()
        finally:
            if is_unix:
                os.umask(mask)
