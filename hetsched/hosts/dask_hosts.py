"""Membership by Dask: each worker of a Dask cluster is a host.

Dask starts the workers, knows which are there, and secures the way to them. Each gets a child
(`hetsched.hosts.host`); all data goes through that child's own socket.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import ipaddress
import logging
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import dask.config
from distributed import Client
from distributed.comm.core import FatalCommClosedError
from distributed.security import Security

import hetsched
from hetsched import errors
from hetsched.hosts.channel import PATIENCE
from hetsched.hosts.tcp import Link, TcpHosts
from hetsched.hosts.worker import place
from hetsched.units import quoted

LOOK = 2.0
"""Seconds between two looks for new workers."""
RETRY = 3.0
"""Seconds before a worker without a connection is asked again."""
CLOSE = 5.0
"""Seconds for the scheduler to take leave."""


class _DaskClient(Client):
    """One that closes at once if it can't connect: its `__del__` may block any thread."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # It would ask every two seconds what workers do, and keep it for nobody.
        with dask.config.set({"distributed.client.scheduler-info-interval": "1 day"}):
            super().__init__(*arguments, **options)

    def start(self, **options: Any) -> Any:
        try:
            return super().start(**options)
        except BaseException:
            with contextlib.suppress(Exception):
                self.close(timeout=CLOSE)
            raise


class DaskHosts(TcpHosts):
    """The workers of the Dask cluster at `address`, those that come later included.

    Raises Unavailable, ProtocolError of another version, NotPermitted (plain TCP to another
    machine unless `insecure`; TLS), or InputMissing (a file of the certificates).
    """

    def __init__(
        self,
        address: str,
        *,
        security: Security | None = None,
        insecure: bool = False,
        timeout: float = 30.0,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(patience)
        _check_address(address, insecure)
        _check_answer(address, timeout)
        try:
            self._dask = _DaskClient(
                address, security=security, timeout=timeout, set_as_default=False, name="hetsched"
            )
        except (ssl.SSLError, FatalCommClosedError) as error:  # of the handshake
            raise errors.NotPermitted(f"{address}: TLS refused: {_line(error)}") from None
        except TypeError:
            raise errors.Unavailable(
                f"{address} needs certificates: set distributed.comm.tls in Dask's configuration,"
                " or give security"
            ) from None
        except (OSError, TimeoutError, ValueError, RuntimeError) as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, ssl.SSLError):
                cause = cause.__cause__
            if cause is not None:  # as of a certificate that has expired
                raise errors.NotPermitted(f"{address}: TLS refused: {_line(cause)}") from None
            _check_files(security or Security())
            raise errors.Unavailable(f"no scheduler at {address}: {_line(error)}") from None
        arguments = self._dask.security.get_connection_args("client")
        self._context: ssl.SSLContext | None = arguments.get("ssl_context")
        self._address = address
        self._workers: set[str] | None = None
        """None: not known yet."""
        self._joined: dict[str, Link] = {}
        self._asked: dict[str, float] = {}
        """Worker -> when it was asked for its place; infinite while it hasn't answered."""
        self._refused: dict[str, errors.HetschedError] = {}
        """Worker -> why it takes no part."""
        threading.Thread(target=self._watch, name="hetsched-hosts", daemon=True).start()
        try:
            self._wait_for_answers(timeout)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections; the hosts stay."""
        super().close()
        logger = logging.getLogger("distributed.client")
        hide = logging.Filter("none of Dask's")  # of a scheduler that has gone: a traceback
        logger.addFilter(hide)
        try:
            self._dask.close(CLOSE)
        finally:
            logger.removeFilter(hide)

    def refusals(self) -> list[errors.HetschedError]:
        with self._changed:
            late = (self._workers or set()) - set(self._joined) - set(self._refused)
            silent = [errors.Unavailable(f"{worker}: no answer") for worker in sorted(late)]
            return [*self._refused.values(), *silent]

    def _wait_for_answers(self, timeout: float) -> None:
        """Wait until all workers have answered, or some have and the others take too long."""
        began = time.monotonic()

        def is_enough() -> bool:
            late = time.monotonic() - began > self.patience
            waits = self._workers is None or self._workers - set(self._joined) - set(self._refused)
            return not waits or (late and bool(self._links))

        with self._changed:
            self._changed.wait_for(is_enough, timeout)
            if not self._links:
                found = list(self._refused.values())
                kind = type(found[0]) if found else errors.Unavailable
                reasons = "; ".join(map(str, found))
                if not reasons:
                    reasons = "no worker answers" if self._workers else "it has no workers"
                raise kind(f"no host at {self._address}: {reasons}")

    def _watch(self) -> None:
        while True:
            with contextlib.suppress(Exception):  # the scheduler may be away; it is asked again
                self._look()
            if self._has_ended.wait(LOOK):
                return

    def _look(self) -> None:
        """Connect to new workers, each in a thread of its own: it may not answer."""
        workers = set(self._dask.nthreads())
        with self._changed:
            self._workers, now = workers, time.monotonic()
            known: tuple[dict[str, Any], ...] = (self._joined, self._asked, self._refused)
            for table in known:
                for worker in table.keys() - workers:
                    del table[worker]
            for worker in sorted(workers):
                link = self._joined.get(worker)
                is_here = link is not None and self._links.get(link.name) is link
                if not is_here and now - self._asked.get(worker, -math.inf) > RETRY:
                    self._asked[worker] = math.inf
                    threading.Thread(target=self._admit, args=(worker,), daemon=True).start()
            self._changed.notify_all()

    def _admit(self, worker: str) -> None:
        """Connect to a worker's child."""
        try:
            link, refusal = self._join_worker(worker), None
        except errors.HetschedError as error:
            link, refusal = None, error
        except Exception as error:  # whatever Dask or the worker raise
            link, refusal = None, errors.Unavailable(f"{worker}: {_line(error)}")
        with self._changed:
            self._asked[worker] = time.monotonic()
            self._refused.pop(worker, None)
            if link is not None:
                self._joined[worker] = link
            elif refusal is not None:
                self._refused[worker] = refusal
            self._changed.notify_all()

    def _join_worker(self, worker: str) -> Link:
        try:
            version = self._run(worker, importlib.metadata.version, "hetsched")
        except importlib.metadata.PackageNotFoundError:
            raise errors.Unavailable(f"{worker}: hetsched isn't installed there") from None
        if version != hetsched.__version__:
            raise errors.ProtocolError(
                f"{worker}: has hetsched {version}, you have {hetsched.__version__}"
            )
        machine, interface, port, token = self._run(worker, place)
        return self.join(machine, (interface, port), token, self._context)

    def _run(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._dask.run(function, *arguments, workers=[worker])[worker]


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
            " this is safe (insecure=True, --insecure)"
        )


def _check_files(security: Any) -> None:
    """Raise InputMissing if a file of a client's can't be read: Dask doesn't name it."""
    for path in (security.tls_ca_file, security.tls_client_cert, security.tls_client_key):
        if path and "\n" not in path:  # else it is the text itself
            try:
                open(path, "rb").close()
            except OSError as error:
                raise errors.InputMissing(
                    f"{path}, of distributed.comm.tls: {error.strerror}"
                ) from None


def _check_answer(address: str, seconds: float) -> None:
    """Raise Unavailable at once if nothing listens there: Dask would try until its timeout."""
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), seconds).close()
    except OSError as error:
        raise errors.Unavailable(f"no scheduler at {address}: {_line(error)}") from None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
