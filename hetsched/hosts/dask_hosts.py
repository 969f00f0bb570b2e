"""Membership by Dask: each worker of a Dask cluster is a host.

Dask starts the workers, knows which are there, and secures the way to them. The plug-in starts a
child of each worker (`hetsched.hosts.host`); all data goes through that child's own socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import ipaddress
import itertools
import secrets
import socket
import ssl
import subprocess
import sys
import threading
from typing import Any
from urllib.parse import urlsplit

import msgspec
from distributed import Client
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.security import Security

import hetsched
from hetsched import errors
from hetsched.hosts.channel import PATIENCE
from hetsched.hosts.host import Settings
from hetsched.hosts.tcp import TcpHosts
from hetsched.units import quoted

START = 30.0
"""Seconds for a host's child to start, and for the scheduler to answer."""
LOOK = 1.0
"""Seconds between two looks for new workers."""


class HostPlugin(WorkerPlugin):
    """Starts what serves coordinators beside a worker, once, and ends it with the worker.

    The child's standard input is a pipe from the worker: it ends however the worker does.
    """

    name = "hetsched"
    idempotent = True

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    async def setup(self, worker: Any) -> None:
        token = secrets.token_hex(32)
        security = worker.security
        settings = Settings(
            token=token,
            interface=urlsplit(worker.address).hostname or "127.0.0.1",
            ca=security.tls_ca_file or "",
            certificate=security.tls_worker_cert or "",
            key=security.tls_worker_key or "",
            **self.settings,
        )
        worker.hetsched = (settings.interface, token, *await asyncio.to_thread(_start, settings))

    def teardown(self, worker: Any) -> None:
        *_, child = worker.hetsched
        child.stdin.close()  # it ends by itself; the worker's nanny waits for seconds only


def _start(settings: Settings) -> tuple[int, subprocess.Popen[bytes]]:
    """Start a worker's child; return its port. Raises RuntimeError."""
    child = subprocess.Popen(
        [sys.executable, "-m", "hetsched.hosts.host"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    late = threading.Timer(START, child.kill)
    late.start()
    try:
        child.stdin.write(msgspec.json.encode(settings) + b"\n")
        child.stdin.flush()
        return int(child.stdout.readline()), child
    except (OSError, ValueError):
        child.kill()
        raise RuntimeError("hetsched's host process hasn't started: see its log") from None
    finally:
        late.cancel()


def _place(dask_worker: Any) -> tuple[str, str, int, str]:
    interface, token, port, _ = dask_worker.hetsched
    return socket.gethostname(), interface, port, token


class DaskHosts(TcpHosts):
    """The workers of the Dask cluster at `address`, those that come later included.

    Raises
    ------
    Unavailable
        No scheduler answers, it has no worker, or a worker has no hetsched.
    ProtocolError
        A worker has another version.
    NotPermitted
        Plain TCP to another machine unless `insecure`; TLS was refused.
    """

    def __init__(
        self,
        address: str,
        *,
        security: Security | None = None,
        insecure: bool = False,
        timeout: float = START,
        patience: float = PATIENCE,
        settings: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(patience)
        _check_address(address, insecure)
        try:
            self._dask = Client(
                address, security=security, timeout=timeout, set_as_default=False, name="hetsched"
            )
        except ssl.SSLError as error:
            raise errors.NotPermitted(f"{address}: TLS refused: {error.reason}") from None
        except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
            raise errors.Unavailable(f"no scheduler at {address}: {_line(error)}") from None
        self._context = self._ssl_context()
        self._seen: set[str] = set()
        self.refused: dict[str, str] = {}
        """Worker -> why it takes no part."""
        self._has_ended = threading.Event()
        try:
            try:
                self._dask.register_plugin(HostPlugin(settings or {}))
            except RuntimeError as error:
                raise errors.Unavailable(f"{address}: {_line(error)}") from None
            self._look()
            if not self.hosts():
                reasons = "; ".join(self.refused.values()) or "it has no workers"
                raise errors.Unavailable(f"no host at {address}: {reasons}")
        except BaseException:
            self.close()
            raise
        self._looker = threading.Thread(target=self._watch, name="hetsched-hosts", daemon=True)
        self._looker.start()

    def close(self) -> None:
        """Close all connections; the hosts stay."""
        self._has_ended.set()
        super().close()
        self._dask.close()

    def _ssl_context(self) -> ssl.SSLContext | None:
        arguments = self._dask.security.get_connection_args("client")
        context: ssl.SSLContext | None = arguments.get("ssl_context")
        return context

    def _watch(self) -> None:
        while not self._has_ended.wait(LOOK):
            with contextlib.suppress(Exception):  # the scheduler may be away; it is asked again
                self._look()

    def _look(self) -> None:
        """Connect to workers that weren't there at the last look."""
        workers = set(self._dask.scheduler_info(n_workers=-1)["workers"])
        new = sorted(workers - self._seen)
        self._seen = workers
        if not new:
            return
        versions = self._dask.run(
            importlib.metadata.version, "hetsched", workers=new, on_error="return"
        )
        for worker, version in versions.items():
            if isinstance(version, importlib.metadata.PackageNotFoundError):
                self.refused[worker] = f"{worker}: hetsched isn't installed there"
            elif version != hetsched.__version__:
                self.refused[worker] = (
                    f"{worker}: has hetsched {version}, you have {hetsched.__version__}"
                )
        usable = [worker for worker in new if worker not in self.refused]
        if not usable:
            return
        places = self._dask.run(_place, workers=usable, on_error="return")
        for worker, place in places.items():
            if isinstance(place, BaseException):
                self.refused[worker] = f"{worker}: {_line(place)}"
                continue
            machine, interface, port, token = place
            try:
                self.join(self._name(machine), (interface, port), token, self._context)
            except errors.HetschedError as error:
                self.refused[worker] = str(error)

    def _name(self, machine: str) -> str:
        """Return the machine's name, numbered if it has several workers: models are kept by it."""
        present = self.hosts()
        names = itertools.chain([machine], (f"{machine}#{i}" for i in itertools.count(2)))
        return next(name for name in names if name not in present)


def _check_address(address: str, insecure: bool) -> None:
    try:
        parts = urlsplit(address)
        port = parts.port
    except (ValueError, TypeError, AttributeError):
        parts, port = urlsplit(""), None
    if parts.scheme not in ("tcp", "tls") or not parts.hostname or not port:
        raise errors.UsageError(
            f"cluster: {quoted(address)} should be tcp://HOST:PORT or tls://HOST:PORT"
        )
    is_loopback = parts.hostname == "localhost"
    with contextlib.suppress(ValueError):
        is_loopback = ipaddress.ip_address(parts.hostname).is_loopback
    if parts.scheme == "tcp" and not is_loopback and not insecure:
        raise errors.NotPermitted(
            f"{address} isn't encrypted, and goes to another machine: use tls://, or say that"
            " this is safe (insecure)"
        )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
